//! The file in an upload: the body itself, or one field of a form (`multipart/form-data`), passed on as it comes.

use bytes::{Bytes, BytesMut};
use croft_meta::ApiError;
use futures::stream;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use memchr::memmem;

use crate::answer::{Body, BoxError};
use crate::moving::Moving;

/// What may come before the file: other fields, and the headers of each.
const MAX_BEFORE: usize = 64 << 10;
/// The longest boundary that the standard allows, and then some.
const MAX_BOUNDARY: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Raw,
    /// The field of a form that has the file.
    Field(&'static str),
    /// Either, as the content type says.
    RawOrField(&'static str),
}

/// The bytes of the file, as a body that must keep moving.
pub(crate) async fn file_of(headers: &HeaderMap, body: Body, form: Form) -> Result<Body, ApiError> {
    let body = Moving::new(body).boxed_unsync();
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let field = match (form, boundary(content_type)) {
        (Form::Raw, _) | (Form::RawOrField(_), None) => return Ok(body),
        (Form::Field(field) | Form::RawOrField(field), Some(boundary)) => {
            Reader::new(body, &boundary).find(field).await?
        }
        (Form::Field(_), None) => return Err(ApiError::bad_request("the body is not multipart/form-data")),
    };
    let chunks = stream::try_unfold(field, async |mut field: Reader| {
        let chunk = field.chunk().await?;
        Ok::<_, BoxError>(chunk.map(|chunk| (Frame::data(chunk), field)))
    });
    Ok(BodyExt::boxed_unsync(StreamBody::new(chunks)))
}

/// What separates the parts of a form; `None` if it is none.
fn boundary(content_type: &str) -> Option<String> {
    let mut parts = content_type.split(';');
    if !parts.next()?.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let parameter = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    });
    parameter.filter(|boundary| !boundary.is_empty() && boundary.len() <= MAX_BOUNDARY)
}

/// A form on its way in.
struct Reader {
    body: Body,
    /// `\r\n--<boundary>`
    delimiter: Vec<u8>,
    /// Read, but not passed on: at most one read and what may be the beginning of a delimiter.
    buffer: BytesMut,
    is_over: bool,
}

impl Reader {
    fn new(body: Body, boundary: &str) -> Self {
        // The first delimiter has no line before it that it could end.
        let buffer = BytesMut::from(&b"\r\n"[..]);
        Self { body, delimiter: format!("\r\n--{boundary}").into_bytes(), buffer, is_over: false }
    }

    /// Goes to the first byte of a field.
    async fn find(mut self, field: &str) -> Result<Self, ApiError> {
        let mut before = 0;
        loop {
            before += self.skip_past_delimiter(before).await?;
            let headers = self.part_headers().await?;
            if is_named(&headers, field) {
                return Ok(self);
            }
            before += headers.len();
        }
    }

    async fn skip_past_delimiter(&mut self, before: usize) -> Result<usize, ApiError> {
        let mut skipped = 0;
        loop {
            if let Some(at) = memmem::find(&self.buffer, &self.delimiter) {
                drop(self.buffer.split_to(at + self.delimiter.len()));
                return Ok(skipped + at);
            }
            let spare = self.buffer.len().saturating_sub(self.delimiter.len());
            skipped += spare;
            drop(self.buffer.split_to(spare));
            if before + skipped > MAX_BEFORE {
                return Err(ApiError::bad_request("the form has too much before the file"));
            }
            self.read().await.map_err(broken)?;
        }
    }

    /// The lines after a delimiter, up to the empty one.
    async fn part_headers(&mut self) -> Result<String, ApiError> {
        loop {
            if self.buffer.starts_with(b"--") {
                return Err(ApiError::bad_request("the form has no field with the file"));
            }
            if let Some(at) = memmem::find(&self.buffer, b"\r\n\r\n") {
                let headers = self.buffer.split_to(at + 4);
                return Ok(String::from_utf8_lossy(&headers).into_owned());
            }
            if self.buffer.len() > MAX_BEFORE {
                return Err(ApiError::bad_request("the form has too much before the file"));
            }
            self.read().await.map_err(broken)?;
        }
    }

    /// The next piece of the field; `None` after its last.
    async fn chunk(&mut self) -> Result<Option<Bytes>, BoxError> {
        while !self.is_over {
            if let Some(at) = memmem::find(&self.buffer, &self.delimiter) {
                self.is_over = true;
                let last = self.buffer.split_to(at).freeze();
                return Ok((!last.is_empty()).then_some(last));
            }
            // What might be the beginning of a delimiter is kept until more is known.
            let sure = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            if sure > 0 {
                return Ok(Some(self.buffer.split_to(sure).freeze()));
            }
            self.read().await?;
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<(), BoxError> {
        loop {
            let frame = self.body.frame().await.ok_or("the form ends in the middle of a field")??;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                self.buffer.extend_from_slice(&data);
                return Ok(());
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "called by map_err")]
fn broken(error: BoxError) -> ApiError {
    ApiError::bad_request(format!("the form cannot be read: {error}"))
}

/// Whether the headers of a part name this field.
fn is_named(headers: &str, field: &str) -> bool {
    let disposition = headers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    disposition.unwrap_or_default().split(';').skip(1).any(|parameter| {
        parameter.trim().split_once('=').is_some_and(|(name, value)| {
            name.trim().eq_ignore_ascii_case("name") && value.trim().trim_matches('"') == field
        })
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// A form in pieces of so many bytes.
    async fn extract(form: &[u8], piece: usize, field: &'static str) -> Result<Vec<u8>, String> {
        let pieces: Vec<_> =
            form.chunks(piece).map(|p| Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(p)))).collect();
        let body = BodyExt::boxed_unsync(StreamBody::new(stream::iter(pieces)));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("multipart/form-data; boundary=\"xyz\""));
        let file = file_of(&headers, body, Form::Field(field)).await.map_err(|error| error.message().to_owned())?;
        file.collect().await.map(|all| all.to_bytes().to_vec()).map_err(|error| error.to_string())
    }

    fn form(content: &[u8]) -> Vec<u8> {
        let mut form = b"--xyz\r\nContent-Disposition: form-data; name=\"size\"\r\n\r\n12\r\n--xyz\r\n\
            content-disposition: form-data; name=\"chunk\"; filename=\"a.img\"\r\nContent-Type: x/y\r\n\r\n"
            .to_vec();
        form.extend_from_slice(content);
        form.extend_from_slice(b"\r\n--xyz--\r\n");
        form
    }

    #[tokio::test]
    async fn the_file_comes_out_as_it_went_in() {
        let contents: [&[u8]; 5] = [b"", b"hello", b"\r\n--xy\r\n--\r\n", b"\r\n\r\n", &[0; 5000]];
        for content in contents {
            for piece in [1, 2, 3, 7, 64, 10_000] {
                assert_eq!(extract(&form(content), piece, "chunk").await.as_deref(), Ok(content), "{piece}");
            }
        }
        assert_eq!(extract(&form(b"x"), 5, "size").await.unwrap(), b"12");
    }

    #[tokio::test]
    async fn broken_forms_are_errors() {
        let whole = form(b"hello");
        assert!(extract(&whole[..whole.len() - 12], 7, "chunk").await.unwrap_err().contains("ends in the middle"));
        assert!(extract(&whole, 7, "file").await.unwrap_err().contains("no field with the file"));
        assert!(extract(b"", 7, "file").await.unwrap_err().contains("ends in the middle"));
        let endless = vec![b'a'; 200_000];
        assert!(extract(&endless, 4096, "file").await.unwrap_err().contains("too much before"));
    }

    #[test]
    fn boundaries_are_read() {
        let table = [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("Multipart/Form-Data; charset=utf-8; Boundary=\"a b\"", Some("a b")),
            ("multipart/form-data", None),
            ("application/octet-stream; boundary=abc", None),
        ];
        for (content_type, expected) in table {
            assert_eq!(boundary(content_type).as_deref(), expected, "{content_type}");
        }
    }
}
