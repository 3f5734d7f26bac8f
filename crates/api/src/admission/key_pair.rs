//! KeyPairs.

use croft_meta::{ApiError, FieldPath};

use super::Admission;
use super::denial::Denial;
use super::machine::HARVESTER;
use crate::harvester::ssh_key::PublicKey;
use crate::view::{has, text};

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let key = text(admission.object, "spec.publicKey");
    let is_same = admission.old.is_some_and(|old| text(old, "spec.publicKey") == key);
    if is_same || has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let mut denial = Denial::by(HARVESTER);
    let field = FieldPath::new("spec.publicKey");
    if key.is_empty() {
        denial.required(&field, "public key is required");
    } else if let Err(error) = PublicKey::parse(key) {
        denial.invalid(&field, format!("key is not in valid OpenSSH public key format: {error}"));
    }
    denial.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admitted, nothing, refusal, write};
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVcYlyuMnrtHVQnZ+JQab4xvu6q9kNcam9W/ZJ2MWJu me";

    #[test]
    fn only_keys_are_taken() {
        admitted(admit, json!({"spec": {"publicKey": KEY}}));
        assert!(refusal(admit, json!({"spec": {}})).message().ends_with("public key is required"));
        let wrong = refusal(admit, json!({"spec": {"publicKey": "ssh-rsa nope"}}));
        assert!(wrong.message().contains("key is not in valid OpenSSH public key format"), "{wrong}");
        assert_eq!(wrong.code(), 422);
    }

    #[test]
    fn what_was_there_before_may_stay() {
        let old = json!({"spec": {"publicKey": "old"}});
        let labelled = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"publicKey": "old"}});
        write(admit, labelled, Some(&old), &nothing(), false).unwrap();
        write(admit, json!({"spec": {"publicKey": "new"}}), Some(&old), &nothing(), false).unwrap_err();
    }
}
