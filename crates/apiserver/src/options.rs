//! The options of a request, from its query or its DeleteOptions body, checked as upstream checks them.

use croft_meta::field::FieldErrors;
use croft_meta::{ApiError, FieldError, FieldPath, Revision};
use serde::Deserialize;

use crate::request::Query;

/// What to do about unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Options of POST, PUT and PATCH.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: bool,
}

/// Who calls a write, for the checks that differ between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    Create,
    Update,
    Patch,
    Apply,
}

const FIELD_MANAGER_MAX: usize = 128;

impl WriteOptions {
    pub(crate) fn parse(query: &Query, kind: WriteKind, user_agent: &str) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::new();
        let manager = query.get("fieldManager").unwrap_or_default();
        check_force(query, kind, manager, &mut errors);
        check_field_manager(manager, &mut errors);
        let dry_run = parse_dry_run(query.all("dryRun"), &mut errors);
        let field_validation = match query.get("fieldValidation").unwrap_or_default() {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported(&FieldPath::new("fieldValidation"), other, &supported));
                FieldValidation::Strict
            }
        };
        if !errors.is_empty() {
            let options = match kind {
                WriteKind::Create => "CreateOptions",
                WriteKind::Update => "UpdateOptions",
                WriteKind::Patch | WriteKind::Apply => "PatchOptions",
            };
            return Err(ApiError::invalid("meta.k8s.io", options, "", &errors));
        }
        let field_manager = if manager.is_empty() { manager_from_user_agent(user_agent) } else { manager.to_owned() };
        Ok(Self { dry_run, field_manager, field_validation, force: query.flag("force") })
    }
}

fn check_force(query: &Query, kind: WriteKind, manager: &str, errors: &mut FieldErrors) {
    match kind {
        WriteKind::Apply if manager.is_empty() => {
            errors.push(FieldError::required(&FieldPath::new("fieldManager"), "is required for apply patch"));
        }
        WriteKind::Patch if query.get("force").is_some() => {
            errors.push(FieldError::forbidden(&FieldPath::new("force"), "may not be specified for non-apply patch"));
        }
        _ => {}
    }
}

fn check_field_manager(manager: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new("fieldManager");
    if manager.len() > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long(&path, FIELD_MANAGER_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let code = u32::from(c);
        errors.push(FieldError::invalid(&path, manager, format!("invalid character U+{code:04X} (at position {at})")));
    }
}

fn parse_dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut FieldErrors) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|v| *v != "All") {
        errors.push(FieldError::not_supported(&FieldPath::new("dryRun"), values.clone(), &["All"]));
    }
    !values.is_empty()
}

/// Upstream names the manager after the client program: what stands before the first `/`.
fn manager_from_user_agent(user_agent: &str) -> String {
    let program = user_agent.split('/').next().unwrap_or_default();
    let printable: String = program.chars().filter(|c| !c.is_control()).take(FIELD_MANAGER_MAX).collect();
    if printable.is_empty() { "unknown".to_owned() } else { printable }
}

/// How dependants fare when their owner goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) precondition_uid: Option<String>,
    pub(crate) precondition_resource_version: Option<String>,
    /// Delete it even if it cannot be read, whatever depends on it.
    pub(crate) ignores_read_errors: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawDeleteOptions {
    dry_run: Option<Vec<String>>,
    grace_period_seconds: Option<i64>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    preconditions: Option<RawPreconditions>,
    #[serde(rename = "ignoreStoreReadErrorWithClusterBreakingPotential")]
    ignore_store_read_error: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPreconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    /// From the DeleteOptions object of the body; without one, from the query.
    pub(crate) fn parse(query: &Query, body: Option<serde_json::Value>) -> Result<Self, ApiError> {
        let raw = match body {
            Some(body) => serde_json::from_value(body).map_err(|e| ApiError::bad_request(e.to_string()))?,
            None => Self::from_query(query)?,
        };
        let mut errors = FieldErrors::new();
        let path = FieldPath::new("propagationPolicy");
        let policy = raw.propagation_policy.as_deref();
        if let (Some(policy), Some(_)) = (policy, raw.orphan_dependents) {
            let text = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&path, policy, text));
        }
        let propagation = match policy {
            None => raw.orphan_dependents.map(|o| if o { Propagation::Orphan } else { Propagation::Background }),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(&path, other, &supported));
                None
            }
        };
        let dry_run = parse_dry_run(raw.dry_run.iter().flatten().map(String::as_str), &mut errors);
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        let preconditions = raw.preconditions.unwrap_or_default();
        Ok(Self {
            dry_run,
            grace_period_seconds: raw.grace_period_seconds,
            propagation,
            precondition_uid: preconditions.uid,
            precondition_resource_version: preconditions.resource_version,
            ignores_read_errors: raw.ignore_store_read_error.unwrap_or_default(),
        })
    }

    fn from_query(query: &Query) -> Result<RawDeleteOptions, ApiError> {
        let grace_period_seconds = match query.get("gracePeriodSeconds") {
            None | Some("") => None,
            Some(text) => Some(parse_int(text)?),
        };
        let dry_run: Vec<String> = query.all("dryRun").map(str::to_owned).collect();
        Ok(RawDeleteOptions {
            dry_run: Some(dry_run).filter(|d| !d.is_empty()),
            grace_period_seconds,
            orphan_dependents: query.get("orphanDependents").map(|_| query.flag("orphanDependents")),
            propagation_policy: query.get("propagationPolicy").filter(|p| !p.is_empty()).map(str::to_owned),
            preconditions: None,
            ignore_store_read_error: Some(query.flag("ignoreStoreReadErrorWithClusterBreakingPotential")),
        })
    }
}

/// A whole number, with Go's words when it is none.
pub(crate) fn parse_int(text: &str) -> Result<i64, ApiError> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse().map_err(|error: std::num::ParseIntError| {
        let why =
            if matches!(error.kind(), PosOverflow | NegOverflow) { "value out of range" } else { "invalid syntax" };
        ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
    })
}

/// Options of LIST, WATCH and DELETECOLLECTION.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) resource_version: String,
    pub(crate) exact: bool,
    pub(crate) not_older_than: bool,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query, watch: bool) -> Result<Self, ApiError> {
        let text = |key: &str| query.get(key).unwrap_or_default().to_owned();
        let number = |key: &str| match query.get(key) {
            None | Some("") => Ok(0),
            Some(text) => parse_int(text),
        };
        let matching = query.get("resourceVersionMatch").unwrap_or_default();
        let options = Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            limit: usize::try_from(number("limit")?).unwrap_or_default(),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            exact: matching == "Exact",
            not_older_than: matching == "NotOlderThan",
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
            timeout_seconds: u64::try_from(number("timeoutSeconds")?).ok().filter(|t| *t > 0),
        };
        let errors = if watch { options.check_watch(matching) } else { options.check_list(matching) };
        if errors.is_empty() { Ok(options) } else { Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
    }

    fn check_list(&self, matching: &str) -> FieldErrors {
        let path = FieldPath::new("resourceVersionMatch");
        let mut errors = FieldErrors::new();
        if !matching.is_empty() {
            let mut forbid = |text: &str| errors.push(FieldError::forbidden(&path, text));
            if self.resource_version.is_empty() {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !self.continue_token.is_empty() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if !self.exact && !self.not_older_than {
                errors.push(FieldError::not_supported(&path, matching, &["Exact", "NotOlderThan", ""]));
            }
            if self.exact && self.resource_version == "0" {
                let text = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(&path, text));
            }
        }
        if self.send_initial_events.is_some() {
            let path = FieldPath::new("sendInitialEvents");
            errors.push(FieldError::forbidden(&path, "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn check_watch(&self, matching: &str) -> FieldErrors {
        let path = FieldPath::new("resourceVersionMatch");
        let mut errors = FieldErrors::new();
        if self.send_initial_events.is_some() && !self.not_older_than {
            let text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&path, text));
        }
        if matching.is_empty() {
            // Without a version a watch begins with the present state, which is not continued from anywhere.
            if !self.continue_token.is_empty() && matches!(self.resource_version.as_str(), "" | "0") {
                let text = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(&path, text));
            }
            return errors;
        }
        if self.send_initial_events.is_none() {
            let text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(&path, text));
        }
        if !self.not_older_than {
            errors.push(FieldError::not_supported(&path, matching, &["NotOlderThan"]));
        }
        if !self.continue_token.is_empty() {
            let text = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(&path, text));
        }
        errors
    }

    /// The revision that the client names; `None` when it leaves that to us.
    pub(crate) fn revision(&self) -> Result<Option<Revision>, ApiError> {
        if self.resource_version.is_empty() {
            return Ok(None);
        }
        parse_revision(&self.resource_version).map(Some)
    }

    /// As [`Self::revision`], for lists, which blame the client.
    pub(crate) fn list_revision(&self) -> Result<Option<Revision>, ApiError> {
        self.revision().map_err(|_| {
            ApiError::bad_request(format!("invalid resource version: {}", bad_revision(&self.resource_version)))
        })
    }
}

/// Upstream calls a version that is no number a fault of its own, except in lists.
pub(crate) fn parse_revision(text: &str) -> Result<Revision, ApiError> {
    text.parse().map_err(|_| ApiError::new(500, "", bad_revision(text)))
}

fn bad_revision(text: &str) -> String {
    format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax")
}
