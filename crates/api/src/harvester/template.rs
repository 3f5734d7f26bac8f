//! What a VirtualMachineTemplate and its versions hold.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Condition;
use crate::kind::{is_default, nullable};
use crate::kubevirt::VirtualMachineSpec;
use crate::view::{list, text};

/// On a version: the name of its template.
pub const LABEL_TEMPLATE: &str = "template.harvesterhci.io/templateID";
const CLAIM_TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
const IMAGE: &str = "harvesterhci.io/imageId";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineTemplateSpec {
    /// `namespace/name` of the version that machines are made from unless another is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_version_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineTemplateStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_version: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_version: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineTemplateVersionSpec {
    /// `namespace/name`
    pub template_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `namespace/name`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// `namespace/name` each
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub key_pair_ids: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm: Option<TemplateMachine>,
}

/// A machine without a status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMachine {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub spec: VirtualMachineSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineTemplateVersionStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The images (`namespace/name`) that disks of a version are made from.
pub fn images_of_version(version: &Value) -> Vec<String> {
    let mut images = vec![text(version, "spec.imageId").to_owned()];
    let annotations = version.pointer("/spec/vm/metadata/annotations");
    let claims = annotations.and_then(|map| map.get(CLAIM_TEMPLATES)).and_then(Value::as_str).unwrap_or_default();
    let claims: Value = serde_json::from_str(claims).unwrap_or_default();
    for claim in claims.as_array().into_iter().flatten() {
        let image = claim.pointer("/metadata/annotations").and_then(|map| map.get(IMAGE)).and_then(Value::as_str);
        images.extend(image.map(str::to_owned));
    }
    for template in list(version, "spec.vm.spec.dataVolumeTemplates") {
        let image = template.pointer("/metadata/annotations").and_then(|map| map.get(IMAGE)).and_then(Value::as_str);
        images.extend(image.map(str::to_owned));
    }
    images.retain(|image| !image.is_empty());
    images.sort();
    images.dedup();
    images
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_found_wherever_a_version_names_them() {
        let claims =
            json!([{"metadata": {"name": "root", "annotations": {IMAGE: "a/one"}}}, {"metadata": {"name": "data"}}]);
        let version = json!({"spec": {
            "imageId": "a/two",
            "vm": {"metadata": {"annotations": {CLAIM_TEMPLATES: claims.to_string()}}},
        }});
        assert_eq!(images_of_version(&version), ["a/one", "a/two"]);
        assert!(images_of_version(&json!({"spec": {"templateId": "a/t"}})).is_empty());
    }
}
