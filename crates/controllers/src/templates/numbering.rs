//! What a template and its versions should look like.

use std::sync::Arc;

use croft_api::harvester::{
    LABEL_TEMPLATE, VirtualMachineImage, VirtualMachineTemplate, VirtualMachineTemplateVersion, images_of_version,
    set_condition,
};
use croft_reconcile::Key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

type Version = VirtualMachineTemplateVersion;

pub(super) struct Numbered {
    pub(super) template: VirtualMachineTemplate,
    /// In the order that they were given in.
    pub(super) versions: Vec<Version>,
}

fn key(id: &str) -> Key {
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    Key::new(namespace, name)
}

pub(super) fn template_of(version: &Version) -> Key {
    key(&version.spec.template_id)
}

/// The images that its disks are made from.
pub(super) fn images(version: &Version) -> Vec<Key> {
    // A struct of known fields can always be written.
    let version = serde_json::to_value(version).unwrap_or_default();
    images_of_version(&version).iter().map(|id| key(id)).collect()
}

pub(super) fn is_imported(image: &VirtualMachineImage) -> bool {
    let conditions = image.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == "Imported" && condition.status == "True")
}

fn number(version: &Version) -> Option<i64> {
    version.status.as_ref().and_then(|status| status.version).filter(|number| *number > 0)
}

pub(super) fn numbered(
    template: &VirtualMachineTemplate,
    versions: &[Arc<Version>],
    is_imported: impl Fn(&Key) -> bool,
    now: Timestamp,
) -> Numbered {
    let mut new = template.clone();
    let status = new.status.get_or_insert_default();
    let highest = versions.iter().filter_map(|version| number(version)).max();
    // A number is not given twice, even if its version is gone.
    let mut latest = highest.max(status.latest_version).unwrap_or_default();
    let mut versions: Vec<Version> = versions.iter().map(|version| (**version).clone()).collect();
    for index in in_order(&versions) {
        let version = &mut versions[index];
        let assigned = number(version).unwrap_or_else(|| {
            latest += 1;
            latest
        });
        belong(version, template);
        let is_ready = images(version).iter().all(&is_imported);
        let status = version.status.get_or_insert_default();
        status.version = Some(assigned);
        set_condition(&mut status.conditions, "assigned", true, ("", ""), now);
        let why = if is_ready { ("", "") } else { ("ImageNotReady", "an image of this version is not imported yet") };
        set_condition(&mut status.conditions, "ready", is_ready, why, now);
    }
    let id = |version: &Version| Key::of(version).to_string();
    let default = new.spec.default_version_id.as_deref().unwrap_or_default();
    if default.is_empty() {
        let first = versions.iter().filter(|version| version.metadata.deletion_timestamp.is_none());
        new.spec.default_version_id = first.min_by_key(|version| number(version)).map(id);
    }
    let default = new.spec.default_version_id.as_deref();
    status.default_version = versions.iter().find(|version| Some(id(version).as_str()) == default).and_then(number);
    status.latest_version = (latest > 0).then_some(latest);
    Numbered { template: new, versions }
}

/// The oldest first; made in the same second, by name.
fn in_order(versions: &[Version]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..versions.len()).collect();
    order.sort_by_key(|index| {
        let metadata = &versions[*index].metadata;
        (metadata.creation_timestamp.clone().map(|time| time.0), metadata.name.clone())
    });
    order
}

/// A version goes with its template.
fn belong(version: &mut Version, template: &VirtualMachineTemplate) {
    let name = template.metadata.name.clone().unwrap_or_default();
    let uid = template.metadata.uid.clone().unwrap_or_default();
    let labels = version.metadata.labels.get_or_insert_default();
    labels.insert(LABEL_TEMPLATE.to_owned(), name.clone());
    let owners = version.metadata.owner_references.get_or_insert_default();
    if owners.iter().all(|owner| owner.uid != uid) {
        owners.push(OwnerReference {
            api_version: "harvesterhci.io/v1beta1".to_owned(),
            kind: "VirtualMachineTemplate".to_owned(),
            name,
            uid,
            ..OwnerReference::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template() -> VirtualMachineTemplate {
        serde_json::from_value(json!({"metadata": {"name": "t", "namespace": "n", "uid": "u"}})).unwrap()
    }

    fn version(name: &str, second: u8, image: &str) -> Arc<Version> {
        let created = format!("2026-01-01T00:00:{second:02}Z");
        let version = json!({
            "metadata": {"name": name, "namespace": "n", "creationTimestamp": created},
            "spec": {"templateId": "n/t", "imageId": image},
        });
        Arc::new(serde_json::from_value(version).unwrap())
    }

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    #[test]
    fn versions_are_counted_by_age_and_the_first_is_the_default() {
        let versions = [version("a", 2, ""), version("b", 1, "")];
        let done = numbered(&template(), &versions, |_| true, now());
        let numbers: Vec<_> = done.versions.iter().map(|version| number(version).unwrap()).collect();
        assert_eq!(numbers, [2, 1]);
        assert_eq!(done.template.spec.default_version_id.as_deref(), Some("n/b"));
        let status = done.template.status.clone().unwrap();
        assert_eq!((status.default_version, status.latest_version), (Some(1), Some(2)));
        let owner = &done.versions[0].metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.uid.as_str(), owner.kind.as_str()), ("u", "VirtualMachineTemplate"));
        assert_eq!(done.versions[0].metadata.labels.as_ref().unwrap()[LABEL_TEMPLATE], "t");

        // Looked at again, nothing changes.
        let versions: Vec<_> = done.versions.iter().cloned().map(Arc::new).collect();
        let again = numbered(&done.template, &versions, |_| true, Timestamp::now());
        assert_eq!(again.template, done.template);
        assert_eq!(again.versions, done.versions);
    }

    #[test]
    fn a_number_is_not_given_twice() {
        let mut old = template();
        old.status.get_or_insert_default().latest_version = Some(3);
        old.spec.default_version_id = Some("n/gone".to_owned());
        let done = numbered(&old, &[version("d", 9, "")], |_| true, now());
        assert_eq!(number(&done.versions[0]), Some(4));
        assert_eq!(done.template.spec.default_version_id.as_deref(), Some("n/gone"));
        assert_eq!(done.template.status.unwrap().default_version, None);
    }

    #[test]
    fn a_version_is_ready_when_its_images_are() {
        let ready = |imported: bool| {
            let done = numbered(&template(), &[version("a", 1, "n/image")], |_| imported, now());
            let conditions = done.versions[0].status.clone().unwrap().conditions;
            conditions.into_iter().find(|condition| condition.type_ == "ready").unwrap().status
        };
        assert_eq!((ready(false).as_str(), ready(true).as_str()), ("False", "True"));
    }

    #[test]
    fn a_template_without_versions_has_no_default() {
        let done = numbered(&template(), &[], |_| true, now());
        assert_eq!(done.template.spec.default_version_id, None);
        assert_eq!(done.template.status.unwrap().latest_version, None);
    }
}
