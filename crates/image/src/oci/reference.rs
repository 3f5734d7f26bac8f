//! Names of images: `[registry/]repository[:tag][@digest]`.

use std::fmt;
use std::str::FromStr;

const DOCKER_HUB: &str = "docker.io";
/// Where Docker Hub's API really is.
const DOCKER_HUB_API: &str = "registry-1.docker.io";
const LONGEST: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    registry: String,
    pub(super) repository: String,
    tag: String,
    digest: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReferenceError(&'static str);

impl Reference {
    /// `host[:port]` to connect to.
    pub fn host(&self) -> &str {
        if self.registry == DOCKER_HUB { DOCKER_HUB_API } else { &self.registry }
    }

    /// As it is written in credentials.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// A tag may name another image tomorrow; a digest never does.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// What to ask the registry for.
    pub(super) fn target(&self) -> &str {
        self.digest.as_deref().unwrap_or(&self.tag)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => write!(f, ":{}", self.tag),
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let text = text.trim();
        let text = text.strip_prefix("docker://").unwrap_or(text);
        if text.is_empty() || text.len() > LONGEST {
            return Err(ReferenceError("it is empty or too long"));
        }
        let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(ReferenceError("its digest is not sha256:<64 hexadecimal digits>"));
        }
        let (path, tag) = split_tag(name);
        if !is_tag(tag) {
            return Err(ReferenceError("its tag has characters that are not allowed"));
        }
        let (registry, repository) = split_registry(path);
        if !is_repository(&repository) {
            return Err(ReferenceError("its repository has characters that are not allowed"));
        }
        if !is_host(registry) {
            return Err(ReferenceError("its registry is not a host"));
        }
        let registry = if registry == "index.docker.io" { DOCKER_HUB } else { registry };
        Ok(Self { registry: registry.to_owned(), repository, tag: tag.to_owned(), digest: digest.map(str::to_owned) })
    }
}

fn split_tag(name: &str) -> (&str, &str) {
    match name.rsplit_once(':') {
        // A port is followed by a path.
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        _ => (name, "latest"),
    }
}

/// The first part is a registry if it looks like a host.
fn split_registry(path: &str) -> (&str, String) {
    match path.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => {
            let is_short = host == DOCKER_HUB && !rest.contains('/');
            (host, if is_short { format!("library/{rest}") } else { rest.to_owned() })
        }
        Some(_) => (DOCKER_HUB, path.to_owned()),
        None => (DOCKER_HUB, format!("library/{path}")),
    }
}

fn is_repository(repository: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
    };
    repository.split('/').all(is_part)
}

fn is_tag(tag: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(is_first) && tag.chars().all(|c| is_first(c) || ".-".contains(c))
}

fn is_host(host: &str) -> bool {
    host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')
        && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(c))
}

pub(super) fn is_digest(digest: &str) -> bool {
    let hex = digest.strip_prefix("sha256:").filter(|hex| hex.len() == 64);
    let hex = hex.or_else(|| digest.strip_prefix("sha512:").filter(|hex| hex.len() == 128));
    hex.is_some_and(|hex| hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_as_docker_does() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for (text, host, shown) in [
            ("fedora", "registry-1.docker.io", "docker.io/library/fedora:latest".to_owned()),
            ("kubevirt/cirros:v1", "registry-1.docker.io", "docker.io/kubevirt/cirros:v1".to_owned()),
            ("docker.io/fedora", "registry-1.docker.io", "docker.io/library/fedora:latest".to_owned()),
            ("docker://quay.io/a/b:1", "quay.io", "quay.io/a/b:1".to_owned()),
            ("localhost:5000/x", "localhost:5000", "localhost:5000/x:latest".to_owned()),
            ("[::1]:5000/x/y:2", "[::1]:5000", "[::1]:5000/x/y:2".to_owned()),
            (&format!("q.io/a:t@{digest}"), "q.io", format!("q.io/a@{digest}")),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!((reference.host(), reference.to_string()), (host, shown), "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [
            "",
            "UPPER/case",
            "a/../b",
            "q.io/a:b c",
            "q.io/a@sha256:12",
            "q.io/a/",
            "q.io/a?x=y:t",
            "/etc/passwd",
            "a@b.io/x",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text}");
        }
    }
}
