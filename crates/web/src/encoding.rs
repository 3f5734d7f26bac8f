//! In which form a file is sent: Vite's files lie packed beside the plain ones.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Brotli,
    Gzip,
    Plain,
}

impl Encoding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Gzip => "gzip",
            Self::Plain => "identity",
        }
    }

    /// What the packed file has after its name.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Gzip => ".gz",
            Self::Plain => "",
        }
    }
}

/// What the client takes, the smallest first. The plain file is taken by everybody.
pub(crate) fn accepted(asked: &HeaderMap) -> impl Iterator<Item = Encoding> + '_ {
    let takes = |encoding: &Encoding| *encoding == Encoding::Plain || offers(asked).any(|name| name == encoding.name());
    [Encoding::Brotli, Encoding::Gzip, Encoding::Plain].into_iter().filter(takes)
}

fn offers(asked: &HeaderMap) -> impl Iterator<Item = &str> {
    let codings = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    codings.flat_map(|value| value.split(',')).filter_map(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let is_refused = weight.trim().strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()).is_some_and(|q| q <= 0.0);
        (!is_refused).then_some(name.trim())
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_smallest_that_is_taken_comes_first() {
        let table: [(&str, &[Encoding]); 5] = [
            ("gzip, deflate, br, zstd", &[Encoding::Brotli, Encoding::Gzip, Encoding::Plain]),
            ("gzip;q=0.5", &[Encoding::Gzip, Encoding::Plain]),
            ("br;q=0, gzip", &[Encoding::Gzip, Encoding::Plain]),
            ("", &[Encoding::Plain]),
            ("brr", &[Encoding::Plain]),
        ];
        for (text, expected) in table {
            let mut asked = HeaderMap::new();
            asked.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            assert_eq!(accepted(&asked).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }
}
