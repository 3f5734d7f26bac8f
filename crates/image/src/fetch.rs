//! Downloads by HTTP that go on where they were cut off, but never glue two different files together.

mod client;
pub(crate) mod record;

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, RANGE,
};
use reqwest::{Client, Response, StatusCode, Url};

pub use client::{Credentials, Proxy, Transport};
pub(crate) use client::{parse, shown, unreachable};
pub(crate) use record::Record;

use crate::error::ImportError;
use crate::import::Progress;
use crate::spool::SpoolWriter;

/// How often the server may fail in a row without sending anything.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// What to download, and within which bounds.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client,
    pub(crate) url: &'a Url,
    pub(crate) headers: HeaderMap,
    pub(crate) stall: Duration,
    pub(crate) max_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) progress: &'a (dyn Fn(Progress) + Send + Sync),
}

/// How one try ended, when it did not fail.
enum Ended {
    Complete,
    /// What came so far is of another file.
    StartOver,
}

impl Download<'_> {
    /// Writes all of it. `record` says what is there already, is kept up to date, and lies beside the file.
    ///
    /// `Changed` and `NotResumable` mean that it can only be started over, with an empty file.
    pub(crate) async fn run(&self, spool: &mut SpoolWriter, record: &Record) -> Result<(), ImportError> {
        let (mut failures, mut pause) = (0, FIRST_PAUSE);
        loop {
            let before = spool.position();
            let error = match self.attempt(spool, record).await {
                Ok(Ended::Complete) => return Ok(()),
                Ok(Ended::StartOver) => return Err(ImportError::Changed { url: shown(self.url) }),
                Err(error) => error,
            };
            if spool.position() > before {
                (failures, pause) = (0, FIRST_PAUSE);
            }
            failures += 1;
            if failures == ATTEMPTS || !is_worth_another_try(&error) {
                return Err(error);
            }
            tracing::debug!(url = %shown(self.url), %error, ?pause, received = spool.position(), "will go on downloading");
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    async fn attempt(&self, spool: &mut SpoolWriter, record: &Record) -> Result<Ended, ImportError> {
        let from = spool.position();
        let response = self.request(from, record).await?;
        match self.check(&response, from, record)? {
            Some(ended) => Ok(ended),
            None => self.receive(response, spool, record).await,
        }
    }

    async fn request(&self, from: u64, record: &Record) -> Result<Response, ImportError> {
        let mut request = self.client.get(self.url.clone()).headers(self.headers.clone());
        request = request.header(ACCEPT_ENCODING, "identity");
        if from > 0 {
            let Some(validator) = record.validator() else {
                let why = "the server does not say by which version a file is known".to_owned();
                return Err(ImportError::NotResumable { url: shown(self.url), why });
            };
            request = request.header(RANGE, format!("bytes={from}-")).header(IF_RANGE, validator);
        }
        match tokio::time::timeout(self.stall, request.send()).await {
            Ok(response) => response.map_err(|error| unreachable(self.url, error)),
            Err(_) => Err(ImportError::Stalled { from: shown(self.url), after: self.stall }),
        }
    }

    /// Whether the answer is what was asked for. None if its body is wanted.
    fn check(&self, response: &Response, from: u64, record: &Record) -> Result<Option<Ended>, ImportError> {
        let headers = response.headers();
        match response.status() {
            StatusCode::OK if from == 0 => {
                let total = number(headers.get(CONTENT_LENGTH));
                self.check_size(total)?;
                record.begin(validator(headers), total);
                Ok(None)
            }
            StatusCode::OK => Ok(Some(Ended::StartOver)),
            StatusCode::PARTIAL_CONTENT if from > 0 => {
                let (start, total) =
                    content_range(headers).ok_or_else(|| self.nonsense("a range that was not asked for"))?;
                if start != from {
                    return Err(self.nonsense("a range that was not asked for"));
                }
                let is_same = total.is_none_or(|total| record.total().is_none_or(|known| known == total));
                let answered = validator(headers);
                let is_same = is_same && (answered.is_none() || answered == record.validator());
                Ok((!is_same).then_some(Ended::StartOver))
            }
            StatusCode::RANGE_NOT_SATISFIABLE if record.total() == Some(from) => Ok(Some(Ended::Complete)),
            StatusCode::RANGE_NOT_SATISFIABLE => match (content_range(headers), record.total()) {
                (_, Some(announced)) => Err(ImportError::Size { url: shown(self.url), announced, actual: from }),
                _ => Ok(Some(Ended::StartOver)),
            },
            status => Err(ImportError::Refused { url: shown(self.url), status: status.to_string() }),
        }
    }

    fn check_size(&self, total: Option<u64>) -> Result<(), ImportError> {
        let Some(size) = total else { return Ok(()) };
        if size > self.max_bytes {
            return Err(ImportError::TooLarge { what: "file", limit: self.max_bytes });
        }
        if size > self.available_bytes {
            return Err(ImportError::NoSpace { what: "file", size, available: self.available_bytes });
        }
        Ok(())
    }

    async fn receive(
        &self,
        mut response: Response,
        spool: &mut SpoolWriter,
        record: &Record,
    ) -> Result<Ended, ImportError> {
        let total = record.total();
        while let Some(chunk) = self.chunk(&mut response, spool.position()).await? {
            let position = spool.position() + chunk.len() as u64;
            if position > self.max_bytes {
                return Err(ImportError::TooLarge { what: "file", limit: self.max_bytes });
            }
            if let Some(announced) = total.filter(|total| position > *total) {
                return Err(ImportError::Size { url: shown(self.url), announced, actual: position });
            }
            spool.write(chunk).await?;
            (self.progress)(Progress { done: position, total });
        }
        match total {
            Some(announced) if announced != spool.position() => {
                Err(ImportError::Size { url: shown(self.url), announced, actual: spool.position() })
            }
            _ => Ok(Ended::Complete),
        }
    }

    async fn chunk(&self, response: &mut Response, received: u64) -> Result<Option<Bytes>, ImportError> {
        match tokio::time::timeout(self.stall, response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(source)) => {
                Err(ImportError::BrokeOff { url: shown(self.url), received, source: source.without_url() })
            }
            Err(_) => Err(ImportError::Stalled { from: shown(self.url), after: self.stall }),
        }
    }

    fn nonsense(&self, why: &str) -> ImportError {
        ImportError::Protocol { url: shown(self.url), why: why.to_owned() }
    }
}

/// By the same connection, soon.
fn is_worth_another_try(error: &ImportError) -> bool {
    let is_transfer = matches!(
        error,
        ImportError::Unreachable { .. }
            | ImportError::Stalled { .. }
            | ImportError::BrokeOff { .. }
            | ImportError::Refused { .. }
            | ImportError::Protocol { .. }
    );
    is_transfer && error.may_pass()
}

/// By what two answers are known to be of the same file. A weak tag may stay the same when bytes change.
fn validator(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    text(ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| text(LAST_MODIFIED))
}

fn number(value: Option<&reqwest::header::HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}

/// `bytes 5-9/10`: where it starts and the whole size.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim().strip_prefix("bytes")?.trim();
    let (range, total) = range.split_once('/')?;
    let start = range.split_once('-').map_or(Some(0), |(start, _)| start.trim().parse().ok())?;
    Some((start, total.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_understood() {
        for (text, expected) in [
            ("bytes 5-9/10", Some((5, Some(10)))),
            ("bytes 5-9/*", Some((5, None))),
            ("bytes */10", Some((0, Some(10)))),
            ("lines 1-2/3", None),
            ("bytes x-9/10", None),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_RANGE, text.parse().unwrap())]);
            assert_eq!(content_range(&headers), expected, "{text}");
        }
    }

    #[test]
    fn a_weak_tag_is_not_trusted() {
        let date = "Mon, 16 Nov 2026 00:00:00 GMT";
        let headers =
            HeaderMap::from_iter([(ETAG, "W/\"a\"".parse().unwrap()), (LAST_MODIFIED, date.parse().unwrap())]);
        assert_eq!(validator(&headers).as_deref(), Some(date));
        let headers = HeaderMap::from_iter([(ETAG, "\"a\"".parse().unwrap()), (LAST_MODIFIED, date.parse().unwrap())]);
        assert_eq!(validator(&headers).as_deref(), Some("\"a\""));
    }
}
