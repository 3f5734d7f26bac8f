//! OpenAPI: `/openapi/v2` in one document, `/openapi/v3` in one per group and version; as JSON or as gnostic's protobuf.
//!
//! Documents are made when they are first asked for and kept compressed, since they are large and rarely read. An
//! [`OpenApi`] belongs to one catalog and is dropped with it.

mod builtin;
mod custom;
mod document;
mod gnostic;
mod operations;
mod parameters;

use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Write as _};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use crate::catalog::Catalog;
use crate::discovery::hex_upper;
use crate::negotiate::MediaType;
use document::Source;
use operations::Part;

const JSON: &str = "application/json";
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// What client-go asks for; the answer has the other name.
const V2_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
const V3_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// What the client asks for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) path: &'a str,
    /// `?hash=`, empty when absent.
    pub(crate) hash: &'a str,
    /// The Accept header's list, best first.
    pub(crate) accept: &'a [MediaType<'a>],
    pub(crate) accepts_gzip: bool,
}

#[derive(Debug)]
pub(crate) enum Reply {
    /// Answered with `Vary: Accept` and, if `is_immutable`, `Cache-Control: public, immutable`.
    Document(Answer),
    /// 301: the hash in the query is not that of the current document.
    Moved(String),
    NotAcceptable,
    NotFound,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) content_type: &'static str,
    /// Quoted, as the header has it.
    pub(crate) etag: String,
    pub(crate) body: Bytes,
    pub(crate) is_gzip: bool,
    pub(crate) is_immutable: bool,
}

/// A document in one format.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Document {
    V2Json,
    V2Protobuf,
    V3Json(Part),
    V3Protobuf(Part),
}

#[derive(Debug)]
pub(crate) struct OpenApi {
    catalog: Arc<Catalog>,
    /// Compressed documents.
    cache: Mutex<HashMap<Document, Bytes>>,
    /// Held while a document is made: one at a time bounds the memory this takes.
    making: Mutex<()>,
    hashes: OnceLock<BTreeMap<Part, String>>,
}

impl OpenApi {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog, cache: Mutex::default(), making: Mutex::default(), hashes: OnceLock::new() }
    }

    /// Answers a GET below `/openapi/`. `crds` fetches the CustomResourceDefinitions that the catalog was made from; it
    /// is only called when a document must be made. Making one takes up to a second: not for an async worker.
    pub(crate) fn answer(&self, request: &Request<'_>, crds: impl Fn() -> Vec<Value>) -> Reply {
        match request.path.trim_end_matches('/') {
            "/openapi/v2" => self.v2(request, crds),
            "/openapi/v3" => self.index(crds),
            path => match path.strip_prefix("/openapi/v3/") {
                Some(name) => self.v3(name, request, crds),
                None => Reply::NotFound,
            },
        }
    }

    fn v2(&self, request: &Request<'_>, crds: impl Fn() -> Vec<Value>) -> Reply {
        let offer =
            [(JSON, Document::V2Json), (V2_PROTOBUF_OLD, Document::V2Protobuf), (V2_PROTOBUF, Document::V2Protobuf)];
        let Some((_, document)) = choose(request.accept, &offer) else { return Reply::NotAcceptable };
        let content_type = if *document == Document::V2Json { JSON } else { V2_PROTOBUF };
        let mut hash = Sha512::new();
        for part in self.hashes(&crds).values() {
            hash.update(part);
        }
        self.document(document, content_type, &hex_upper(&hash.finalize()), request, crds)
    }

    fn v3(&self, name: &str, request: &Request<'_>, crds: impl Fn() -> Vec<Value>) -> Reply {
        let Some((part, hash)) = self.hashes(&crds).iter().find(|(part, _)| part.name() == name) else {
            return Reply::NotFound;
        };
        let protobuf = Document::V3Protobuf(part.clone());
        let offer =
            [(JSON, Document::V3Json(part.clone())), (V3_PROTOBUF, protobuf.clone()), (V3_PROTOBUF_OLD, protobuf)];
        let Some((accepted, document)) = choose(request.accept, &offer) else { return Reply::NotAcceptable };
        let content_type = if *accepted == JSON { JSON } else { V3_PROTOBUF };
        if !request.hash.is_empty() && request.hash != hash {
            return Reply::Moved(format!("/openapi/v3/{name}?hash={hash}"));
        }
        self.document(document, content_type, hash, request, crds)
    }

    /// Small enough to be made each time; whatever the client accepts, it is JSON, as upstream.
    fn index(&self, crds: impl Fn() -> Vec<Value>) -> Reply {
        let path = |(part, hash): (&Part, &String)| {
            let name = part.name();
            let url = format!("/openapi/v3/{name}?hash={hash}");
            (name, json!({ "serverRelativeURL": url }))
        };
        let paths: serde_json::Map<String, Value> = self.hashes(&crds).iter().map(path).collect();
        let body = Bytes::from(json!({ "paths": paths }).to_string());
        let etag = format!("\"{}\"", hex_upper(&Sha512::digest(&body)));
        Reply::Document(Answer { content_type: JSON, etag, body, is_gzip: false, is_immutable: false })
    }

    fn document(
        &self,
        document: &Document,
        content_type: &'static str,
        hash: &str,
        request: &Request<'_>,
        crds: impl Fn() -> Vec<Value>,
    ) -> Reply {
        let packed = self.packed(document, crds);
        let body = if request.accepts_gzip { packed } else { unpack(&packed) };
        Reply::Document(Answer {
            content_type,
            etag: format!("\"{hash}\""),
            body,
            is_gzip: request.accepts_gzip,
            is_immutable: !request.hash.is_empty(),
        })
    }

    fn packed(&self, document: &Document, crds: impl Fn() -> Vec<Value>) -> Bytes {
        let cached = || self.cache.lock().get(document).cloned();
        if let Some(packed) = cached() {
            return packed;
        }
        let _making = self.making.lock();
        // Somebody else may have made it while this call waited.
        if let Some(packed) = cached() {
            return packed;
        }
        let crds = crds();
        let source = Source::new(&self.catalog, &crds);
        let packed = pack(&match document {
            Document::V2Json => source.v2_json(),
            Document::V2Protobuf => source.v2_protobuf(),
            Document::V3Json(part) => source.v3_json(part),
            Document::V3Protobuf(part) => source.v3_protobuf(part),
        });
        self.cache.lock().insert(document.clone(), packed.clone());
        packed
    }

    /// A hash per part: of what the document is made from, so that the index needs no documents.
    fn hashes(&self, crds: &impl Fn() -> Vec<Value>) -> &BTreeMap<Part, String> {
        self.hashes.get_or_init(|| {
            let crds = crds();
            let base = builtin_hash();
            let hash = |part: Part| (part.clone(), part_hash(&self.catalog, &crds, &part, base));
            Part::all(&self.catalog).into_iter().map(hash).collect()
        })
    }
}

/// Of this program's definitions, which change only with the program.
fn builtin_hash() -> &'static [u8] {
    static HASH: OnceLock<Vec<u8>> = OnceLock::new();
    HASH.get_or_init(|| Sha512::digest(Value::Object(croft_api::openapi_definitions()).to_string()).to_vec())
}

fn part_hash(catalog: &Catalog, crds: &[Value], part: &Part, base: &[u8]) -> String {
    let mut hash = Sha512::new();
    hash.update(base);
    hash.update(env!("CARGO_PKG_VERSION"));
    for item in part.paths(catalog) {
        hash.update(format!("{item:?}"));
    }
    if let Part::Version(gv) = part {
        let of_group = |crd: &&Value| crd["spec"]["group"] == gv.group.as_str() && !gv.group.is_empty();
        for crd in crds.iter().filter(of_group) {
            hash.update(crd["spec"].to_string());
        }
    }
    hex_upper(&hash.finalize())
}

/// The first of the client's media types that is on offer; no list accepts anything.
fn choose<'o, T>(accept: &[MediaType<'_>], offer: &'o [(&'static str, T)]) -> Option<&'o (&'static str, T)> {
    let matches = |asked: &str, offered: &str| match asked {
        "*/*" | "application/*" => true,
        asked => asked == offered,
    };
    if accept.is_empty() {
        return offer.first();
    }
    accept.iter().find_map(|media| offer.iter().find(|(offered, _)| matches(media.essence, offered)))
}

fn pack(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 8), Compression::default());
    // Neither call can fail: both write to memory.
    let packed = encoder.write_all(plain).and_then(|()| encoder.finish());
    let mut packed = packed.unwrap_or_default();
    packed.shrink_to_fit();
    Bytes::from(packed)
}

fn unpack(packed: &[u8]) -> Bytes {
    let mut plain = Vec::with_capacity(packed.len() * 10);
    // What `pack` made can be read.
    let _ = GzDecoder::new(packed).read_to_end(&mut plain);
    Bytes::from(plain)
}

#[cfg(test)]
mod tests;
/// A custom resource, for the tests of several modules.
#[cfg(test)]
pub(crate) mod widgets;
