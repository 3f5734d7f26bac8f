//! Public keys: each gets its fingerprint, and a word on whether it is one.

use std::time::Duration;

use croft_api::harvester::ssh_key::PublicKey;
use croft_api::harvester::{KeyPair, set_condition};
use croft_reconcile::{Cache, Error, Key, failure};
use jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::{one_kind, patch};

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    one_kind::run("key pair", client, stop, |_| Some(Duration::ZERO), tell).await;
}

async fn tell(client: Client, cache: Cache<KeyPair>, key: Key) -> Result<(), Error> {
    let Some(old) = cache.get(&key).filter(|pair| pair.metadata.deletion_timestamp.is_none()) else { return Ok(()) };
    let Some(change) = patch::guarded(&*old, &told(&old, Timestamp::now())) else { return Ok(()) };
    let api: Api<KeyPair> = Api::namespaced(client, &key.namespace);
    let written = api.patch(&key.name, &patch::as_harvester(), &Patch::Merge(&change)).await;
    if let Some(written) = failure::absent_is_none(written)? {
        cache.wrote(written);
    }
    Ok(())
}

/// The pair with what is to be said of it.
fn told(pair: &KeyPair, now: Timestamp) -> KeyPair {
    let mut new = pair.clone();
    let status = new.status.get_or_insert_default();
    match PublicKey::parse(&pair.spec.public_key) {
        Ok(key) => {
            status.finger_print = Some(key.fingerprint());
            set_condition(&mut status.conditions, "validated", true, ("", ""), now);
        }
        Err(error) => {
            status.finger_print = None;
            let why = error.to_string();
            set_condition(&mut status.conditions, "validated", false, ("InvalidKey", &why), now);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVcYlyuMnrtHVQnZ+JQab4xvu6q9kNcam9W/ZJ2MWJu me";

    #[test]
    fn keys_get_a_fingerprint_and_others_a_reason() {
        let mut pair = KeyPair::default();
        pair.spec.public_key = KEY.to_owned();
        let good = told(&pair, Timestamp::UNIX_EPOCH);
        let status = good.status.clone().unwrap();
        assert_eq!(status.finger_print.as_deref(), Some("bc:85:56:b8:99:67:c3:16:5d:e3:66:62:6c:b9:ff:09"));
        assert_eq!((status.conditions[0].type_.as_str(), status.conditions[0].status.as_str()), ("validated", "True"));
        // Said once, and not again.
        assert_eq!(told(&good, Timestamp::now()), good);

        let mut bad = good;
        bad.spec.public_key = "nonsense".to_owned();
        let status = told(&bad, Timestamp::UNIX_EPOCH).status.unwrap();
        assert_eq!(status.finger_print, None);
        assert_eq!(status.conditions[0].status, "False");
    }
}
