//! Which form the client wants its answer in.

use croft_meta::ApiError;
use http::HeaderMap;
use http::header::ACCEPT;

/// The shape of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As stored.
    Whole,
    /// `as=Table`, in `meta.k8s.io/<version>`.
    Table(&'static str),
    /// `as=PartialObjectMetadata` or its list, in `meta.k8s.io/<version>`.
    Partial(&'static str),
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) shape: Shape,
    pub(crate) format: Format,
    /// `pretty=true`: indented, for people.
    pub(crate) is_pretty: bool,
}

impl Output {
    pub(crate) const JSON: Self = Self { shape: Shape::Whole, format: Format::Json, is_pretty: false };

    /// The same form of writing, for what has no table: a `Status`, say.
    pub(crate) fn whole(self) -> Self {
        Self { shape: Shape::Whole, ..self }
    }

    /// Tables and metadata are plain JSON to the outside: their kind says what they are.
    pub(crate) fn content_type(self) -> &'static str {
        match self.format {
            Format::Yaml => "application/yaml",
            Format::Json => "application/json",
        }
    }
}

/// One element of an Accept header.
#[derive(Debug, Default)]
pub(crate) struct MediaType<'a> {
    pub(crate) essence: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> MediaType<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut media = Self { essence: parts.next().unwrap_or_default(), params: Vec::new(), quality: 1.0 };
        for (key, value) in parts.filter_map(|p| p.split_once('=')) {
            let value = value.trim().trim_matches('"');
            if key.trim() == "q" {
                media.quality = value.parse().unwrap_or(0.0);
            } else {
                media.params.push((key.trim(), value));
            }
        }
        media
    }

    pub(crate) fn param(&self, name: &str) -> &'a str {
        self.params.iter().find(|(k, _)| *k == name).map_or("", |(_, v)| v)
    }
}

/// The elements of an Accept header, best first; equal ones keep their order.
pub(crate) fn accepted(headers: &HeaderMap) -> Vec<MediaType<'_>> {
    let mut list: Vec<MediaType<'_>> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(MediaType::parse)
        .filter(|media| !media.essence.is_empty())
        .collect();
    list.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    list
}

/// The first form of the client's list that we can write. No Accept header means JSON.
pub(crate) fn output(headers: &HeaderMap) -> Result<Output, ApiError> {
    first(headers, supported)
}

/// The same, for what cannot be shown as a table.
pub(crate) fn output_without_table(headers: &HeaderMap) -> Result<Output, ApiError> {
    first(headers, |media| supported(media).filter(|output| !matches!(output.shape, Shape::Table(_))))
}

fn first(headers: &HeaderMap, supported: impl Fn(&MediaType<'_>) -> Option<Output>) -> Result<Output, ApiError> {
    let list = accepted(headers);
    if list.is_empty() {
        return Ok(Output::JSON);
    }
    list.iter().find_map(supported).ok_or_else(|| {
        const FORMS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        if list.iter().any(|media| media.essence.starts_with("application/")) {
            return ApiError::not_acceptable(format!("only the following media types are accepted: {FORMS}"));
        }
        ApiError::not_acceptable(format!("406: Not Acceptable\n\nAvailable representations: {FORMS}"))
            .with_details(croft_meta::status::Details::default())
    })
}

fn supported(media: &MediaType<'_>) -> Option<Output> {
    let format = match media.essence {
        "application/json" | "*/*" | "application/*" => Format::Json,
        "application/yaml" => Format::Yaml,
        _ => return None,
    };
    let version = match (media.param("g"), media.param("v")) {
        ("meta.k8s.io", "v1") => Some("v1"),
        ("meta.k8s.io", "v1beta1") => Some("v1beta1"),
        _ => None,
    };
    let shape = match (media.param("as"), version) {
        ("", _) => Shape::Whole,
        ("Table", Some(version)) => Shape::Table(version),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", Some(version)) => Shape::Partial(version),
        _ => return None,
    };
    Some(Output { shape, format, is_pretty: false })
}

/// What a request body is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

/// A missing Content-Type counts as JSON: several clients send none.
pub(crate) fn body_format(content_type: &str) -> Result<BodyFormat, ApiError> {
    match MediaType::parse(content_type).essence {
        "" | "application/json" => Ok(BodyFormat::Json),
        "application/yaml" => Ok(BodyFormat::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyFormat::Protobuf),
        _ => Err(ApiError::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_supported_form_wins() {
        let ask = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            output(&headers).map(|o| o.shape)
        };
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(ask(kubectl).unwrap(), Shape::Table("v1"));
        assert_eq!(ask("application/vnd.kubernetes.protobuf,application/json").unwrap(), Shape::Whole);
        assert_eq!(ask("*/*").unwrap(), Shape::Whole);
        assert_eq!(
            ask("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").unwrap(),
            Shape::Partial("v1")
        );
        assert_eq!(
            ask("application/json;q=0.1,application/json;as=Table;g=meta.k8s.io;v=v1;q=0.5").unwrap(),
            Shape::Table("v1")
        );
        assert_eq!(ask("text/html").unwrap_err().code(), 406);
        assert_eq!(ask("application/json;as=Nonsense;g=meta.k8s.io;v=v1").unwrap_err().code(), 406);
    }
}
