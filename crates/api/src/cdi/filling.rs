//! What CDI's annotations on a claim say about its content.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// How far whoever fills the claim is: `Pending`, `Running`, `Succeeded`.
pub const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
/// Whose claim it was before, filled for a data volume of this name.
pub const POPULATED_FOR: &str = "cdi.kubevirt.io/storage.populatedFor";
/// It waits for a file of a user.
pub const UPLOAD_TARGET: &str = "cdi.kubevirt.io/storage.upload.target";
/// All its blocks are to be taken from the pool at once.
pub const PREALLOCATION_REQUESTED: &str = "cdi.kubevirt.io/storage.preallocation.requested";
/// They have been.
pub const PREALLOCATED: &str = "cdi.kubevirt.io/storage.preallocation";

/// Ours: the snapshot that the volume is to become again. Whoever asks for it does so when nobody uses the volume.
pub const REVERT: &str = "croft.io/revert-to";
/// What it became last.
pub const REVERTED: &str = "croft.io/reverted-to";
/// Why it did not.
pub const REVERT_ERROR: &str = "croft.io/revert-error";

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub fn is_upload_target(claim: &PersistentVolumeClaim) -> bool {
    annotation(claim, UPLOAD_TARGET).is_some()
}

pub fn is_filled(claim: &PersistentVolumeClaim) -> bool {
    annotation(claim, POD_PHASE) == Some("Succeeded") || annotation(claim, POPULATED_FOR).is_some()
}

/// The snapshot that it is to become again.
pub fn revert_to(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(claim, REVERT)
}

/// Something is to fill it, and has not yet: what is in it must not be used.
pub fn is_being_filled(claim: &PersistentVolumeClaim) -> bool {
    revert_to(claim).is_some() || is_to_be_filled(claim)
}

fn is_to_be_filled(claim: &PersistentVolumeClaim) -> bool {
    (annotation(claim, POD_PHASE).is_some() || is_upload_target(claim)) && !is_filled(claim)
}

pub fn wants_preallocation(claim: &PersistentVolumeClaim) -> bool {
    annotation(claim, PREALLOCATION_REQUESTED) == Some("true")
}

pub fn is_preallocated(claim: &PersistentVolumeClaim) -> bool {
    annotation(claim, PREALLOCATED) == Some("true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(annotations: &[(&str, &str)]) -> PersistentVolumeClaim {
        let mut claim = PersistentVolumeClaim::default();
        let all = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        claim.metadata.annotations = Some(all);
        claim
    }

    #[test]
    fn a_claim_is_filled_when_it_is_said_to_be() {
        for (annotations, is_waiting) in [
            (vec![], false),
            (vec![(POD_PHASE, "Pending")], true),
            (vec![(POD_PHASE, "Running")], true),
            (vec![(POD_PHASE, "Succeeded")], false),
            (vec![(UPLOAD_TARGET, "")], true),
            (vec![(UPLOAD_TARGET, ""), (POD_PHASE, "Succeeded")], false),
            (vec![(POD_PHASE, "Pending"), (POPULATED_FOR, "disk")], false),
        ] {
            assert_eq!(is_being_filled(&claim(&annotations)), is_waiting, "{annotations:?}");
        }
    }
}
