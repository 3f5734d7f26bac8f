//! `subresources.kubevirt.io`: what one can do with a virtual machine beyond changing its object, as KubeVirt's virt-api
//! offers it and virtctl calls it.
//!
//! Three kinds of requests: those that are a change of an object in disguise ([`lifecycle`], [`volumes`],
//! [`memory_dump`]), those that the agent of the machine's node answers ([`live`], and [`stream`] for connections), and
//! those that are worked out here ([`expand`], [`object_graph`], [`about`]). Codes and words are KubeVirt's.
//!
//! None of it is a resource of the table: nothing of this group is stored.

pub(crate) mod about;
mod expand;
mod lifecycle;
mod live;
mod machine;
mod memory_dump;
mod object_graph;
mod request_body;
pub(crate) mod stream;
mod volumes;

use croft_meta::ApiError;
use serde_json::Value;

use crate::answer::{self, Answer};
use crate::call::{Call, Target};
use crate::options::{FieldValidation, WriteOptions};
use crate::pipeline::not_allowed;
use crate::verbs::update::{Candidate, change};
use crate::write::in_version;

pub(crate) const GROUP: &str = "subresources.kubevirt.io";
/// Best first.
pub(crate) const VERSIONS: [&str; 2] = ["v1", "v1alpha3"];

/// The group of the objects themselves.
const OBJECTS: &str = "kubevirt.io";
const MANAGER: &str = "virt-api";

/// The machine as it should be, or as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Vm,
    Vmi,
}

impl Kind {
    fn plural(self) -> &'static str {
        match self {
            Self::Vm => "virtualmachines",
            Self::Vmi => "virtualmachineinstances",
        }
    }

    /// What KubeVirt calls it in errors.
    fn noun(self) -> &'static str {
        match self {
            Self::Vm => "virtualmachine",
            Self::Vmi => "virtualmachineinstance",
        }
    }

    fn conflict(self, name: &str, why: impl std::fmt::Display) -> ApiError {
        ApiError::conflict(OBJECTS, self.noun(), name, why)
    }

    fn not_found(self, name: &str) -> ApiError {
        ApiError::not_found(OBJECTS, self.noun(), name)
    }
}

/// Everything but the connections, which are [`stream`]'s.
pub(crate) async fn answer(call: &Call) -> Result<Answer, ApiError> {
    let info = &call.info;
    if !VERSIONS.contains(&info.version.as_str()) || !info.rest.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let kind = match info.resource.as_str() {
        "virtualmachines" => Kind::Vm,
        "virtualmachineinstances" => Kind::Vmi,
        "expand-vm-spec" if info.name.is_empty() && !info.namespace.is_empty() => {
            return if info.verb == "update" { expand::body(call).await } else { Err(not_allowed()) };
        }
        about if info.namespace.is_empty() && info.name.is_empty() => return about::answer(call, about),
        _ => return Err(ApiError::no_such_path()),
    };
    if info.namespace.is_empty() || info.name.is_empty() {
        return Err(ApiError::no_such_path());
    }
    match info.verb {
        "update" => update(call, kind).await,
        "get" => get(call, kind).await,
        _ => Err(not_allowed()),
    }
}

async fn update(call: &Call, kind: Kind) -> Result<Answer, ApiError> {
    match (kind, call.info.subresource.as_str()) {
        (Kind::Vm, "start") => lifecycle::start(call).await?,
        (Kind::Vm, "stop") => lifecycle::stop(call).await?,
        (Kind::Vm, "restart") => lifecycle::restart(call).await?,
        (Kind::Vm, "migrate") => lifecycle::migrate(call).await?,
        (Kind::Vm, "memorydump") => memory_dump::request(call).await?,
        (Kind::Vm, "removememorydump") => memory_dump::remove(call).await?,
        (_, "addvolume") => volumes::add(call, kind).await?,
        (_, "removevolume") => volumes::remove(call, kind).await?,
        (_, "evacuate/cancel") => {
            lifecycle::cancel_evacuation(call, kind).await?;
            return Ok(answer::text(200, ""));
        }
        (Kind::Vmi, action) => return live::act(call, action).await,
        _ => return Err(wrong_method_or_path(call, kind, "get")),
    }
    Ok(answer::text(202, ""))
}

async fn get(call: &Call, kind: Kind) -> Result<Answer, ApiError> {
    match (kind, call.info.subresource.as_str()) {
        (Kind::Vm, "expand-spec") => expand::stored(call).await,
        (_, "objectgraph") => object_graph::answer(call, kind).await,
        (Kind::Vmi, what) => live::ask(call, what).await,
        _ => Err(wrong_method_or_path(call, kind, "update")),
    }
}

/// 405 for what exists under another method, else 404.
fn wrong_method_or_path(call: &Call, kind: Kind, other: &str) -> ApiError {
    let sub = call.info.subresource.as_str();
    let exists = about::SUBRESOURCES.iter().any(|s| s.kind == kind && s.name == sub && s.verb == other);
    if exists { not_allowed() } else { ApiError::no_such_path() }
}

/// Where the machine of this request, or of the other kind of the same name, is kept.
fn target(call: &Call, kind: Kind) -> Result<Target, ApiError> {
    let served = call.catalog.find(OBJECTS, "v1", kind.plural()).ok_or_else(ApiError::no_such_path)?.clone();
    Ok(Target::new(served, &call.info.namespace, &call.info.name))
}

/// The newest state of the machine, if there is one.
async fn look_up(call: &Call, kind: Kind) -> Result<Option<Value>, ApiError> {
    call.server.cache.fresh().await?;
    let target = target(call, kind)?;
    let found = call.server.cache.collection(target.storage_key()).get(&target.id());
    Ok(found.map(|object| in_version(&object, &target)))
}

async fn fetch(call: &Call, kind: Kind) -> Result<Value, ApiError> {
    look_up(call, kind).await?.ok_or_else(|| kind.not_found(&call.info.name))
}

/// Which part of an object is changed, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// As if the caller had changed the object: all rules for users apply.
    Whole,
    /// As only the platform may.
    Internal,
    /// Through the status subresource.
    Status,
}

/// Changes the machine's object. Who may call the subresource may do so, whatever they may do with the object itself.
async fn modify(
    call: &Call,
    kind: Kind,
    part: Part,
    dry_run: bool,
    make: impl Fn(&mut Value) -> Result<(), ApiError> + Send + Sync,
) -> Result<(), ApiError> {
    let mut target = target(call, kind)?;
    if part == Part::Status {
        "status".clone_into(&mut target.subresource);
    }
    let acting = Call::for_object(call, &target, part != Part::Whole);
    let options = WriteOptions {
        dry_run,
        field_manager: MANAGER.to_owned(),
        field_validation: FieldValidation::Ignore,
        force: false,
    };
    let changed = change(&acting, &target, &options, |old| {
        let mut new = old.clone();
        make(&mut new)?;
        Ok(Candidate::Untracked(new))
    });
    match changed.await {
        Ok(_) => {}
        Err(error) if error.code() == 404 => return Err(kind.not_found(&call.info.name)),
        Err(error) => return Err(error),
    }
    for text in acting.take_warnings() {
        call.warn(text);
    }
    Ok(())
}
