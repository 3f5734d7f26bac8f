//! ClusterRoles that are made of others: their rules are gathered by label, and written into them.

use std::time::Duration;

use croft_reconcile::{Error, Event, Keys, Loop, Object, Source, Tasks, failure, watch};
use futures::StreamExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::discovery::builtin;

/// As upstream's: it owns the rules.
const MANAGER: &str = "clusterrole-aggregation-controller";
/// Roles often come in numbers.
const SETTLE: Duration = Duration::from_millis(20);

const PATH: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

#[derive(Deserialize)]
struct Roles {
    items: Vec<Value>,
}

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    let (changes, received) = Keys::channel();
    let mut tasks = Tasks::default();
    tasks.spawn(follow(client.clone(), changes));
    // Roles are few and depend on each other: all are looked at together.
    let work = Loop { name: "cluster role aggregation", workers: 1, stop };
    tokio::select! {
        () = work.run(received, std::future::ready(()), |()| reconcile(client.clone())) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

async fn follow(client: Client, changes: Keys<()>) {
    let resource = builtin("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
    let mut events = watch::<Object>(client, Source::all(resource));
    let mut is_listing = true;
    while let Some(event) = events.next().await {
        match event {
            Event::Restarted => is_listing = true,
            Event::Synced => is_listing = false,
            Event::Applied(_) | Event::Deleted(_) => {}
        }
        if !is_listing {
            changes.send((), SETTLE).await;
        }
    }
}

async fn reconcile(client: Client) -> Result<(), Error> {
    let list = kube::core::Request::new(PATH).list(&ListParams::default()).map_err(kube::Error::BuildRequest)?;
    let roles: Roles = client.request(list).await?;
    let resource = builtin("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    for (name, rules) in croft_api::rbac::aggregate(&roles.items) {
        let rules = match rules {
            Ok(rules) => rules,
            Err(error) => {
                tracing::warn!(role = name, %error, "the selectors of an aggregated role cannot be read");
                continue;
            }
        };
        let patch = json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": name }, "rules": rules,
        });
        let params = PatchParams::apply(MANAGER).force();
        failure::absent_is_none(api.patch_metadata(&name, &params, &Patch::Apply(patch)).await)?;
    }
    Ok(())
}
