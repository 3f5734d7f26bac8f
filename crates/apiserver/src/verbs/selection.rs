//! Label and field selectors, matched against cached objects.

use std::borrow::Cow;

use croft_meta::ApiError;
use croft_meta::selector::{FieldSelector, LabelSelector};

use crate::cache::Object;
use crate::call::Target;
use crate::options::ListOptions;
use crate::write::in_version;

#[derive(Debug)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Some field is neither the name nor the namespace: the object must be parsed.
    needs_object: bool,
    target: Target,
}

impl Selection {
    pub(crate) fn parse(target: &Target, options: &ListOptions) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(&options.label_selector).map_err(|e| ApiError::bad_request(e.to_string()))?;
        let fields = FieldSelector::parse(&options.field_selector).map_err(|e| ApiError::bad_request(e.to_string()))?;
        let mut needs_object = false;
        for requirement in fields.requirements() {
            let field = requirement.field.as_str();
            let is_meta =
                field == "metadata.name" || (field == "metadata.namespace" && target.served.resource.is_namespaced());
            if is_meta {
                continue;
            }
            if !target.served.version().selectable_fields.iter().any(|f| f == field) {
                return Err(ApiError::bad_request(unsupported(target, field)));
            }
            needs_object = true;
        }
        Ok(Self { labels, fields, needs_object, target: target.clone() })
    }

    /// No more than the place that the target names.
    pub(crate) fn everything(target: &Target) -> Self {
        let (labels, fields) = (LabelSelector::everything(), FieldSelector::default());
        Self { labels, fields, needs_object: false, target: target.clone() }
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything() && self.target.name.is_empty()
    }

    /// Nothing is looked at but names and namespaces, which no conversion changes.
    pub(crate) fn is_about_names(&self) -> bool {
        self.labels.is_everything() && !self.needs_object
    }

    /// The one name that the field selector asks for.
    pub(crate) fn single_name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        // A watch of one object names it in its path.
        let is_named = self.target.name.is_empty() || object.name() == self.target.name;
        if !is_named || !self.labels.matches(|key| object.label(key)) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        if !self.needs_object {
            return self.matches_fields(object, None);
        }
        let json = in_version(object, &self.target);
        self.matches_fields(object, Some(&json))
    }

    fn matches_fields(&self, object: &Object, json: Option<&serde_json::Value>) -> bool {
        let behaviour = &self.target.served.resource.behaviour;
        self.fields.requirements().iter().all(|requirement| {
            let value = match (requirement.field.as_str(), json) {
                ("metadata.name", _) => Cow::Borrowed(object.name()),
                ("metadata.namespace", _) => Cow::Borrowed(object.namespace()),
                (field, Some(json)) => Cow::Owned((behaviour.field)(json, field).unwrap_or_default()),
                (_, None) => Cow::Borrowed(""),
            };
            (value == requirement.value) != requirement.negated
        })
    }
}

fn unsupported(target: &Target, field: &str) -> String {
    if target.served.resource.is_custom || !target.served.version().selectable_fields.is_empty() {
        return format!("field label not supported: {field}");
    }
    format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
}
