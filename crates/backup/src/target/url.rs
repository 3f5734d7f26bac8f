//! Targets as Longhorn and Harvester write them: `s3://bucket@region/path`, `nfs://host:/path?nfsOptions=…`, `file:///path`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::layout::{self, NameError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    S3 { bucket: String, region: String, path: String },
    Nfs { host: String, path: String, options: Vec<String> },
    Directory { path: PathBuf },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("a backup target is s3://bucket@region/path, nfs://host:/path or file:///path, not {0}")]
    Scheme(String),
    #[error("{url} is not a backup target: {why}")]
    Form { url: String, why: &'static str },
    #[error("{url} names no backup")]
    Backup {
        url: String,
        #[source]
        source: NameError,
    },
}

impl FromStr for Location {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        let wrong = |why| UrlError::Form { url: url.into(), why };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| UrlError::Scheme(url.into()))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        if path.split('/').any(|part| part == "..") {
            return Err(wrong("its path must not have .. in it"));
        }
        match scheme {
            "s3" => {
                let (bucket, region) = host.split_once('@').unwrap_or((host, ""));
                if bucket.is_empty() || path.is_empty() {
                    return Err(wrong("it must be s3://bucket@region/path/ or s3://bucket/path/"));
                }
                Ok(Self::S3 { bucket: bucket.into(), region: region.into(), path: path.trim_matches('/').into() })
            }
            "nfs" => {
                let host = host.strip_suffix(':').unwrap_or(host);
                if host.is_empty() || path.is_empty() {
                    return Err(wrong("it must be nfs://server:/path"));
                }
                Ok(Self::Nfs { host: host.into(), path: path.into(), options: nfs_options(query) })
            }
            // Longhorn calls a directory vfs.
            "file" | "vfs" if host.is_empty() && path.len() > 1 => Ok(Self::Directory { path: path.into() }),
            "file" | "vfs" => Err(wrong("it must be file:///path, with an absolute path")),
            _ => Err(UrlError::Scheme(url.into())),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, region, path } if region.is_empty() => write!(f, "s3://{bucket}/{path}"),
            Self::S3 { bucket, region, path } => write!(f, "s3://{bucket}@{region}/{path}"),
            Self::Nfs { host, path, options } if options.is_empty() => write!(f, "nfs://{host}:{path}"),
            Self::Nfs { host, path, options } => write!(f, "nfs://{host}:{path}?nfsOptions={}", options.join(",")),
            Self::Directory { path } => write!(f, "file://{}", path.display()),
        }
    }
}

/// Either repeated or with commas.
fn nfs_options(query: &str) -> Vec<String> {
    let values = query.split('&').filter_map(|pair| pair.strip_prefix("nfsOptions="));
    let options = values.flat_map(|value| value.split(',').map(decoded).collect::<Vec<_>>());
    options.filter(|option| !option.is_empty()).collect()
}

/// Undoes `%2C` and the like; what is not such a thing stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Names one backup of a volume, a whole volume or a backing image in a target, as Longhorn's objects do in their status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupUrl {
    Backup { target: String, volume: String, backup: String },
    Volume { target: String, volume: String },
    BackingImage { target: String, name: String },
}

impl FromStr for BackupUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut volume, mut backup, mut image, mut rest) = (None, None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("volume", name)) => volume = Some(decoded(name)),
                Some(("backup", name)) => backup = Some(decoded(name)),
                Some(("backingImage", name)) => image = Some(decoded(name)),
                _ => rest.push(pair),
            }
        }
        let target = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        for name in [&volume, &backup, &image].into_iter().flatten() {
            layout::check_name(name).map_err(|source| UrlError::Backup { url: url.into(), source })?;
        }
        match (volume, backup, image) {
            (Some(volume), Some(backup), None) => Ok(Self::Backup { target, volume, backup }),
            (Some(volume), None, None) => Ok(Self::Volume { target, volume }),
            (None, None, Some(name)) => Ok(Self::BackingImage { target, name }),
            _ => Err(UrlError::Form {
                url: url.into(),
                why: "it must name a volume, a backup of one or a backing image",
            }),
        }
    }
}

impl fmt::Display for BackupUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Backup { target, .. } | Self::Volume { target, .. } | Self::BackingImage { target, .. }) = self;
        let separator = if target.contains('?') { '&' } else { '?' };
        match self {
            Self::Backup { volume, backup, .. } => write!(f, "{target}{separator}backup={backup}&volume={volume}"),
            Self::Volume { volume, .. } => write!(f, "{target}{separator}volume={volume}"),
            Self::BackingImage { name, .. } => write!(f, "{target}{separator}backingImage={name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_longhorn_reads_them() {
        let s3 =
            |region: &str, path: &str| Location::S3 { bucket: "b".into(), region: region.into(), path: path.into() };
        assert_eq!("s3://b@us-east-1/".parse(), Ok(s3("us-east-1", "")));
        assert_eq!("s3://b@eu/some/path/".parse(), Ok(s3("eu", "some/path")));
        assert_eq!("s3://b/path".parse(), Ok(s3("", "path")));
        let nfs = |host: &str, options: &[&str]| Location::Nfs {
            host: host.into(),
            path: "/export/x".into(),
            options: options.iter().map(ToString::to_string).collect(),
        };
        assert_eq!("nfs://10.0.0.1:/export/x".parse(), Ok(nfs("10.0.0.1", &[])));
        assert_eq!("nfs://host/export/x".parse(), Ok(nfs("host", &[])));
        let options = ["soft", "timeo=450"];
        assert_eq!("nfs://h:/export/x?nfsOptions=soft,timeo=450".parse(), Ok(nfs("h", &options)));
        assert_eq!("nfs://h:/export/x?nfsOptions=soft&nfsOptions=timeo%3D450".parse(), Ok(nfs("h", &options)));
        for url in ["file:///srv/backups", "vfs:///srv/backups"] {
            assert_eq!(url.parse(), Ok(Location::Directory { path: "/srv/backups".into() }));
        }
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for url in [
            "",
            "/srv",
            "cifs://h/x",
            "s3://b",
            "s3:///path",
            "nfs://h",
            "nfs://:/x",
            "file://h/x",
            "file:///",
            "file:///a/../b",
        ] {
            assert!(url.parse::<Location>().is_err(), "{url}");
        }
    }

    #[test]
    fn a_target_is_written_as_it_is_read() {
        for url in ["s3://b@eu/p/q", "s3://b/p", "nfs://h:/x?nfsOptions=soft,timeo=450", "nfs://h:/x", "file:///srv/x"]
        {
            assert_eq!(url.parse::<Location>().unwrap().to_string(), url);
        }
    }

    #[test]
    fn a_backup_is_named_by_the_target_and_the_query() {
        let url = "nfs://h:/x?nfsOptions=soft&backup=backup-1&volume=pvc-2";
        let expected = BackupUrl::Backup {
            target: "nfs://h:/x?nfsOptions=soft".into(),
            volume: "pvc-2".into(),
            backup: "backup-1".into(),
        };
        assert_eq!(url.parse(), Ok(expected.clone()));
        assert_eq!(expected.to_string(), url);
        let image = "s3://b@r/?backingImage=vmi-1";
        assert_eq!(image.parse::<BackupUrl>().unwrap().to_string(), image);
        for url in ["s3://b@r/", "s3://b@r/?backup=b1", "s3://b@r/?volume=../x", "s3://b@r/?volume=v1&backingImage=i1"]
        {
            assert!(url.parse::<BackupUrl>().is_err(), "{url}");
        }
    }
}
