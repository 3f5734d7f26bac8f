//! A bucket as a target: Amazon's, or anything that speaks the same.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{Certificate, ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};

use crate::target::{Entry, Fault, Target, TargetError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For one request with its answer; a block is at most a few MiB.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);
/// Where a bucket is if nobody says.
const DEFAULT_REGION: &str = "us-east-1";

/// How to get to a bucket: what Longhorn keeps in the target's Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct S3Access {
    /// Empty for Amazon's own.
    pub endpoint: String,
    pub access_key_id: String,
    pub secret_access_key: String,
    /// Certificates to trust besides the system's, as PEM.
    pub ca: String,
    /// The bucket in the host's name instead of in the path.
    pub is_virtual_hosted: bool,
}

impl fmt::Debug for S3Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Access").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl S3Access {
    /// From the entries of the Secret.
    pub fn from_secret(secret: &BTreeMap<String, String>) -> Self {
        let value = |key: &str| secret.get(key).map(|value| value.trim().to_owned()).unwrap_or_default();
        let endpoint = value("AWS_ENDPOINTS");
        let is_virtual_hosted = match value("VIRTUAL_HOSTED_STYLE").as_str() {
            "true" => true,
            "false" => false,
            _ => endpoint.is_empty(),
        };
        Self {
            endpoint,
            access_key_id: value("AWS_ACCESS_KEY_ID"),
            secret_access_key: value("AWS_SECRET_ACCESS_KEY"),
            ca: value("AWS_CERT"),
            is_virtual_hosted,
        }
    }
}

#[derive(Debug)]
pub struct S3 {
    store: AmazonS3,
    /// Before every path, with a slash at its end unless it is empty.
    prefix: String,
}

impl S3 {
    pub fn new(bucket: &str, region: &str, path: &str, access: S3Access) -> Result<Self, TargetError> {
        let wrong = || TargetError::new(Fault::Configuration, "use bucket", bucket);
        let mut options = ClientOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_timeout(REQUEST_TIMEOUT)
            .with_allow_http(true);
        for certificate in Certificate::from_pem_bundle(access.ca.as_bytes()).map_err(|error| wrong().because(error))? {
            options = options.with_root_certificate(certificate);
        }
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(if region.is_empty() { DEFAULT_REGION } else { region })
            .with_access_key_id(access.access_key_id)
            .with_secret_access_key(access.secret_access_key)
            .with_virtual_hosted_style_request(access.is_virtual_hosted)
            // We try again ourselves, for every kind of target in the same way.
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_client_options(options);
        if !access.endpoint.is_empty() {
            let endpoint = access.endpoint.trim_end_matches('/');
            let endpoint = match endpoint.split_once("://") {
                None => return Err(wrong().because("the endpoint must begin with https:// or http://")),
                Some((scheme, host)) if access.is_virtual_hosted => format!("{scheme}://{bucket}.{host}"),
                Some(_) => endpoint.to_owned(),
            };
            builder = builder.with_endpoint(endpoint);
        }
        let store = builder.build().map_err(|error| wrong().because(error))?;
        let path = path.trim_matches('/');
        Path::parse(path).map_err(|error| wrong().because(error))?;
        Ok(Self { store, prefix: if path.is_empty() { String::new() } else { format!("{path}/") } })
    }

    fn key(&self, doing: &'static str, path: &str) -> Result<Path, TargetError> {
        let key = format!("{}{path}", self.prefix);
        Path::parse(key.trim_end_matches('/'))
            .map_err(|error| TargetError::new(Fault::Configuration, doing, path).because(error))
    }

    fn entry(&self, meta: &ObjectMeta) -> Entry {
        let path = meta.location.as_ref();
        let path = path.strip_prefix(&self.prefix).unwrap_or(path).to_owned();
        let modified = Timestamp::from_second(meta.last_modified.timestamp()).unwrap_or_default();
        Entry { path, size: meta.size, modified }
    }
}

impl Target for S3 {
    fn list<'a>(&'a self, dir: &'a str) -> BoxFuture<'a, Result<Vec<String>, TargetError>> {
        async move {
            let key = self.key("list", dir)?;
            let listed = self.store.list_with_delimiter(Some(&key)).await.map_err(failed("list", dir))?;
            let files = listed.objects.iter().filter_map(|object| object.location.filename());
            let dirs = listed.common_prefixes.iter().filter_map(Path::filename);
            Ok(files.chain(dirs).map(str::to_owned).collect())
        }
        .boxed()
    }

    fn walk<'a>(&'a self, dir: &'a str) -> BoxStream<'a, Result<Entry, TargetError>> {
        let key = match self.key("list", dir) {
            Ok(key) => key,
            Err(error) => return futures::stream::once(async { Err(error) }).boxed(),
        };
        let found = self.store.list(Some(&key));
        found.map_ok(|meta| self.entry(&meta)).map_err(move |error| failed("list", dir)(error)).boxed()
    }

    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Entry>, TargetError>> {
        async move {
            match self.store.head(&self.key("look at", path)?).await.map_err(failed("look at", path)) {
                Ok(meta) => Ok(Some(self.entry(&meta))),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn get<'a>(&'a self, path: &'a str, limit: u64) -> BoxFuture<'a, Result<Bytes, TargetError>> {
        async move {
            let found = self.store.get(&self.key("read", path)?).await.map_err(failed("read", path))?;
            if found.meta.size > limit {
                return Err(TargetError::new(Fault::TooLarge, "read", path));
            }
            found.bytes().await.map_err(failed("read", path))
        }
        .boxed()
    }

    fn put<'a>(&'a self, path: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), TargetError>> {
        async move {
            // One request: it is all there or not at all.
            self.store.put(&self.key("write", path)?, data.into()).await.map_err(failed("write", path))?;
            Ok(())
        }
        .boxed()
    }

    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        async move {
            match self.store.delete(&self.key("delete", path)?).await.map_err(failed("delete", path)) {
                Err(error) if error.is_not_found() => Ok(()),
                other => other,
            }
        }
        .boxed()
    }
}

fn failed(doing: &'static str, path: &str) -> impl FnOnce(object_store::Error) -> TargetError {
    move |error| TargetError::new(fault(&error), doing, path).because(error)
}

/// The library keeps the server's answer in the text of its errors alone; the code in it says more than the status.
fn fault(error: &object_store::Error) -> Fault {
    let text = croft_meta::Chain(error).to_string();
    let says = |codes: &[&str]| codes.iter().any(|code| text.contains(&format!("<Code>{code}</Code>")));
    if says(&["NoSuchBucket", "NoSuchTenant", "PermanentRedirect", "AuthorizationHeaderMalformed"]) {
        return Fault::NoTarget;
    }
    if says(&["QuotaExceeded", "XMinioStorageFull", "EntityTooLarge", "InsufficientCapacity"]) {
        return Fault::Full;
    }
    if says(&["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"]) {
        return Fault::Forbidden;
    }
    match error {
        object_store::Error::NotFound { .. } => return Fault::NotFound,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            return Fault::Forbidden;
        }
        object_store::Error::InvalidPath { .. } => return Fault::Configuration,
        _ => {}
    }
    // Lists give only text.
    let status = text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3));
    match status {
        Some("401" | "403") => Fault::Forbidden,
        Some("404") => Fault::NoTarget,
        Some("507") => Fault::Full,
        Some(_) => Fault::Server,
        None => transport_fault(error),
    }
}

fn transport_fault(error: &object_store::Error) -> Fault {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(http) = inner.downcast_ref::<HttpError>() {
            return match http.kind() {
                HttpErrorKind::Decode => Fault::Server,
                _ => Fault::Unreachable,
            };
        }
        source = inner.source();
    }
    Fault::Server
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_says_where_and_how() {
        let secret = |entries: &[(&str, &str)]| {
            S3Access::from_secret(&entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
        };
        assert!(secret(&[]).is_virtual_hosted, "Amazon's own");
        let access = secret(&[("AWS_ENDPOINTS", "https://s3.lan\n"), ("AWS_ACCESS_KEY_ID", "id")]);
        assert_eq!((access.endpoint.as_str(), access.is_virtual_hosted), ("https://s3.lan", false));
        assert!(secret(&[("AWS_ENDPOINTS", "https://s3.lan"), ("VIRTUAL_HOSTED_STYLE", "true")]).is_virtual_hosted);
        let shown = format!("{:?}", secret(&[("AWS_SECRET_ACCESS_KEY", "hush")]));
        assert!(!shown.contains("hush"), "{shown}");
    }

    #[test]
    fn what_cannot_be_a_bucket_is_refused() {
        let access = S3Access { endpoint: "s3.lan".into(), ..S3Access::default() };
        assert_eq!(S3::new("b", "", "", access).unwrap_err().fault, Fault::Configuration);
        let access = S3Access { ca: "-----BEGIN CERTIFICATE-----\nrubbish".into(), ..S3Access::default() };
        assert_eq!(S3::new("b", "", "", access).unwrap_err().fault, Fault::Configuration);
    }
}
