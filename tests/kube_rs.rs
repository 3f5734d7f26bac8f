//! Controllers written with kube-rs, as most Rust operators are.

use croft_e2e::on_every_server;

on_every_server!(finalizer_and_owned_objects, reflectors, leader_election, server_side_apply_and_patches);

mod body {
    use std::sync::Arc;
    use std::time::Duration;

    use croft_testkit::{Server, eventually, patience};
    use futures::{StreamExt as _, TryStreamExt as _};
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
    use kube::runtime::controller::{Action, Controller};
    use kube::runtime::finalizer::{Event, finalizer};
    use kube::runtime::{WatchStreamExt as _, conditions, reflector, wait, watcher};
    use kube::{Api, Client, Config, CustomResource, CustomResourceExt as _, Resource as _, ResourceExt as _};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    /// A pond is a ConfigMap for each of its ducks.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(
        group = "e2e.example.com",
        version = "v1",
        kind = "Pond",
        namespaced,
        status = "PondStatus",
        shortname = "pd"
    )]
    pub(crate) struct PondSpec {
        ducks: Vec<String>,
    }

    #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    pub(crate) struct PondStatus {
        ducks: usize,
    }

    async fn client(server: &Server) -> Client {
        let text = std::fs::read_to_string(&server.kubeconfig).expect("a kubeconfig");
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let options = kube::config::KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
        Client::try_from(config).expect("a client")
    }

    async fn install(client: &Client) {
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        crds.create(&PostParams::default(), &Pond::crd()).await.expect("the definition is accepted");
        let established = wait::await_condition(crds, "ponds.e2e.example.com", conditions::is_crd_established());
        tokio::time::timeout(patience(), established).await.expect("in time").expect("it is established");
        let ponds: Api<Pond> = Api::default_namespaced(client.clone());
        eventually("ponds are served", async || ponds.list(&ListParams::default()).await).await;
    }

    #[derive(Debug, thiserror::Error)]
    #[error("reconcile: {0}")]
    struct Failed(#[source] Box<dyn std::error::Error + Send + Sync>);

    async fn reconcile(pond: Arc<Pond>, client: Arc<Client>) -> Result<Action, Failed> {
        let ponds: Api<Pond> = Api::default_namespaced(Client::clone(&client));
        finalizer(&ponds, "e2e.example.com/drain", pond, |event| async {
            match event {
                Event::Apply(pond) => fill(&client, &pond).await,
                Event::Cleanup(pond) => drain(&client, &pond).await,
            }
        })
        .await
        .map_err(|error| Failed(Box::new(error)))
    }

    async fn fill(client: &Client, pond: &Pond) -> Result<Action, kube::Error> {
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let owner = pond.controller_owner_ref(&()).expect("it has a name and a uid");
        for duck in &pond.spec.ducks {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": duck, "ownerReferences": [owner]}, "data": {"pond": pond.name_any()}});
            maps.patch(duck, &PatchParams::apply("ponds").force(), &Patch::Apply(map)).await?;
        }
        let status = json!({"status": {"ducks": pond.spec.ducks.len()}});
        let ponds: Api<Pond> = Api::default_namespaced(client.clone());
        ponds.patch_status(&pond.name_any(), &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(Action::await_change())
    }

    async fn drain(client: &Client, pond: &Pond) -> Result<Action, kube::Error> {
        let secrets: Api<Secret> = Api::default_namespaced(client.clone());
        let left = json!({"metadata": {"name": format!("{}-drained", pond.name_any())}});
        let left = serde_json::from_value(left).expect("a secret");
        secrets.create(&PostParams::default(), &left).await?;
        Ok(Action::await_change())
    }

    pub(crate) async fn finalizer_and_owned_objects(server: &Server) {
        let client = client(server).await;
        install(&client).await;
        let ponds: Api<Pond> = Api::default_namespaced(client.clone());
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let secrets: Api<Secret> = Api::default_namespaced(client.clone());
        let running = Controller::new(ponds.clone(), watcher::Config::default())
            .owns(maps.clone(), watcher::Config::default())
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(200)), Arc::new(client.clone()))
            .for_each(|_| async {});
        let running = tokio::spawn(running);

        let pond = Pond::new("mill", PondSpec { ducks: vec!["donald".into(), "daisy".into()] });
        ponds.create(&PostParams::default(), &pond).await.expect("a pond");
        eventually("the pond is filled", async || {
            let pond = ponds.get("mill").await?;
            maps.get("donald").await?;
            maps.get("daisy").await?;
            anyhow::ensure!(pond.status.as_ref().is_some_and(|s| s.ducks == 2), "the status is {:?}", pond.status);
            Ok(())
        })
        .await;
        // An owned object that goes is made again: its watch leads back to the owner.
        maps.delete("daisy", &DeleteParams::default()).await.expect("deleted");
        eventually("daisy is back", async || maps.get("daisy").await).await;
        let pond = ponds.get("mill").await.expect("the pond");
        assert_eq!(pond.finalizers(), ["e2e.example.com/drain"]);
        assert_eq!(pond.meta().generation, Some(1), "neither finalizers nor the status count");

        ponds.delete("mill", &DeleteParams::default()).await.expect("deleted");
        eventually("the clean-up ran", async || secrets.get("mill-drained").await).await;
        eventually("the pond is gone", async || match ponds.get_opt("mill").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        if server.has_controllers() {
            eventually("the ducks are collected", async || match maps.get_opt("donald").await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await;
        }
        running.abort();
    }

    pub(crate) async fn reflectors(server: &Server) {
        let client = client(server).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let make = async |name: &str| {
            let map = json!({"metadata": {"name": name, "labels": {"shown": "yes"}}});
            maps.create(&PostParams::default(), &serde_json::from_value(map).expect("a map")).await.expect("made");
        };
        for i in 0..7 {
            make(&format!("m{i}")).await;
        }
        let list_watch = watcher::Config::default().labels("shown=yes").page_size(3);
        let streaming = watcher::Config::default().labels("shown=yes").streaming_lists();
        for (config, new) in [(list_watch, "late-listed"), (streaming, "late-streamed")] {
            let (reader, writer) = reflector::store();
            let following = reflector(writer, watcher(maps.clone(), config)).default_backoff().applied_objects();
            let following = tokio::spawn(async move { following.try_for_each(|_| async { Ok(()) }).await });
            tokio::time::timeout(patience(), reader.wait_until_ready()).await.expect("in time").expect("ready");
            let before = reader.len();
            assert!(before >= 7, "{before} of the objects at the start");
            make(new).await;
            eventually("the new object is reflected", async || {
                let seen = reader.state().iter().any(|m| m.name_any() == new);
                if seen { Ok(()) } else { Err(format!("{} objects", reader.len())) }
            })
            .await;
            maps.delete("m0", &DeleteParams::default()).await.expect("deleted");
            eventually("the deletion is reflected", async || {
                let gone = reader.state().iter().all(|m| m.name_any() != "m0");
                if gone { Ok(()) } else { Err("m0 is still there") }
            })
            .await;
            make("m0").await;
            following.abort();
        }
    }

    /// The compare-and-swap that every elector does: only one of those who read the same lease may take it.
    pub(crate) async fn leader_election(server: &Server) {
        let client = client(server).await;
        let leases: Api<Lease> = Api::default_namespaced(client.clone());
        let lease = json!({"metadata": {"name": "leader"}, "spec": {"leaseDurationSeconds": 5}});
        let lease = leases.create(&PostParams::default(), &serde_json::from_value(lease).expect("a lease")).await;
        let lease = lease.expect("made");
        let candidates = (0..8).map(|i| {
            let (leases, mut mine) = (leases.clone(), lease.clone());
            async move {
                let spec = mine.spec.get_or_insert_default();
                spec.holder_identity = Some(format!("candidate-{i}"));
                leases.replace("leader", &PostParams::default(), &mine).await
            }
        });
        let outcomes = futures::future::join_all(candidates).await;
        let winners: Vec<_> = outcomes.iter().filter_map(|o| o.as_ref().ok()).collect();
        assert_eq!(winners.len(), 1, "{outcomes:?}");
        for lost in outcomes.iter().filter_map(|o| o.as_ref().err()) {
            assert!(matches!(lost, kube::Error::Api(status) if status.reason == "Conflict"), "{lost:?}");
        }
        let held = leases.get("leader").await.expect("the lease");
        let holder = |lease: &Lease| lease.spec.as_ref().and_then(|s| s.holder_identity.clone());
        assert_eq!(holder(&held), holder(winners[0]));
    }

    pub(crate) async fn server_side_apply_and_patches(server: &Server) {
        let client = client(server).await;
        install(&client).await;
        let ponds: Api<Pond> = Api::default_namespaced(client.clone());
        let mine = Pond::new("p", PondSpec { ducks: vec!["a".into()] });
        let applied = ponds.patch("p", &PatchParams::apply("one"), &Patch::Apply(&mine)).await.expect("applied");
        assert_eq!(applied.meta().managed_fields.as_ref().map(Vec::len), Some(1));
        let theirs = Pond::new("p", PondSpec { ducks: vec!["b".into()] });
        let refused = ponds.patch("p", &PatchParams::apply("two"), &Patch::Apply(&theirs)).await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 409), "{refused:?}");
        let forced = ponds.patch("p", &PatchParams::apply("two").force(), &Patch::Apply(&theirs)).await;
        assert_eq!(forced.expect("forced").spec.ducks, ["b"]);
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let merged = ponds.patch("p", &dry, &Patch::Merge(json!({"spec": {"ducks": []}}))).await.expect("merged");
        assert!(merged.spec.ducks.is_empty());
        assert_eq!(ponds.get("p").await.expect("the pond").spec.ducks, ["b"], "a dry run changes nothing");
        let metadata = ponds.get_metadata("p").await.expect("metadata");
        assert_eq!(metadata.name_any(), "p");
        let strict = PostParams::default();
        let unknown = Pond::new("Bad Name", PondSpec { ducks: vec![] });
        let refused = ponds.create(&strict, &unknown).await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422), "{refused:?}");
    }
}
