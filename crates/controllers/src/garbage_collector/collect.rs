//! The decision on one object: leave it, free it of owners that are gone, delete it, or let it go.

use croft_reconcile::{Error, Meta};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, PropagationPolicy};

use super::Collector;
use super::graph::{FOREGROUND, ORPHAN, Uid, View, Work};
use crate::discovery::Kind;

/// What has become of an object's owners.
#[derive(Debug, Default)]
struct Owners {
    /// There, and staying.
    solid: usize,
    /// UIDs of those that are gone.
    dangling: Vec<String>,
    /// UIDs of those that wait for their dependants to go.
    waiting: Vec<String>,
}

impl Collector {
    pub(super) async fn collect(&self, uid: Uid) -> Result<(), Error> {
        let Some(node) = self.state.lock().graph.view(uid) else { return Ok(()) };
        if node.is_being_deleted && !node.awaits_dependants && !node.is_presumed {
            // It goes when its finalizers are done; that will be seen.
            return Ok(());
        }
        let ty = &node.place.ty;
        let Some(kind) = self.kind_of(&ty.api_version, &ty.kind, Work::Collect(uid)) else { return Ok(()) };
        if kind.is_namespaced && node.place.namespace.is_empty() {
            // A cluster-wide object named it as its owner: that will never come right.
            return Ok(());
        }
        let live = self.live(&kind, &node.place.namespace, &node.place.name).await?;
        let Some(live) = live.filter(|live| is_same(live, uid)) else { return self.absent(uid, &node, &kind).await };
        if node.is_presumed {
            self.confirm(&kind, &live).await;
            return Ok(());
        }
        if node.awaits_dependants {
            return self.let_go(uid, &kind, &node).await;
        }
        self.decide(uid, &node, &kind, &live).await
    }

    /// Nothing is there under this UID: its dependants must know.
    async fn absent(&self, uid: Uid, node: &View, kind: &Kind) -> Result<(), Error> {
        if node.is_presumed && kind.is_namespaced {
            self.report_strangers(uid, node, kind).await?;
        }
        let work = self.state.lock().graph.absent(uid, &node.place);
        self.wake(work).await;
        Ok(())
    }

    async fn confirm(&self, kind: &Kind, live: &ObjectMeta) {
        let Some(watched) = self.watched(kind) else { return };
        let work = {
            let mut state = self.state.lock();
            let ty = state.graph.intern(&watched.resource.api_version, &watched.resource.kind);
            state.graph.confirm(&ty, &Meta::from(live))
        };
        self.wake(work).await;
    }

    /// An owner that is deleted in the foreground goes when nothing blocks it.
    async fn let_go(&self, uid: Uid, kind: &Kind, node: &View) -> Result<(), Error> {
        let blocking = self.state.lock().graph.blocking_dependants(uid);
        if blocking.is_empty() {
            return self.remove_finalizer(kind, &node.place, uid, FOREGROUND).await;
        }
        let to_delete = blocking.into_iter().filter(|(_, is_being_deleted)| !is_being_deleted);
        self.wake(to_delete.map(|(dependant, _)| Work::Collect(dependant)).collect()).await;
        Ok(())
    }

    async fn decide(&self, uid: Uid, node: &View, kind: &Kind, live: &ObjectMeta) -> Result<(), Error> {
        let references = live.owner_references.as_deref().unwrap_or_default();
        if references.is_empty() {
            return Ok(());
        }
        let Some(owners) = self.look_up(uid, live, references).await? else { return Ok(()) };
        if owners.solid > 0 {
            if owners.dangling.is_empty() && owners.waiting.is_empty() {
                return Ok(());
            }
            // Those that wait would wait for this one for ever.
            let going = [owners.dangling, owners.waiting].concat();
            return self.drop_owners(kind, live, &going).await;
        }
        if !owners.waiting.is_empty() && node.has_dependants {
            if self.state.lock().graph.has_waiting_dependant(uid) {
                // Perhaps a circle, in which each would wait for the other.
                self.stop_blocking(kind, live).await?;
                return self.delete(kind, live, PropagationPolicy::Foreground, false).await;
            }
            return self.delete(kind, live, PropagationPolicy::Foreground, true).await;
        }
        self.delete(kind, live, policy_of(live), true).await
    }

    /// None if nothing can be said now, or ever.
    async fn look_up(
        &self,
        uid: Uid,
        live: &ObjectMeta,
        references: &[OwnerReference],
    ) -> Result<Option<Owners>, Error> {
        let namespace = live.namespace.as_deref().unwrap_or_default();
        let mut owners = Owners::default();
        for reference in references {
            let work = Work::Collect(uid);
            let Some(kind) = self.kind_of(&reference.api_version, &reference.kind, work) else { return Ok(None) };
            if kind.is_namespaced && namespace.is_empty() {
                return Ok(None);
            }
            let owner = self.live(&kind, namespace, &reference.name).await?;
            match owner.filter(|owner| owner.uid.as_deref() == Some(&reference.uid)) {
                None => owners.dangling.push(reference.uid.clone()),
                Some(owner) if owner.deletion_timestamp.is_some() && has_finalizer(&owner, FOREGROUND) => {
                    owners.waiting.push(reference.uid.clone());
                }
                Some(_) => owners.solid += 1,
            }
        }
        Ok(Some(owners))
    }

    /// References into another namespace are as good as none; their objects are told why they go.
    async fn report_strangers(&self, uid: Uid, node: &View, kind: &Kind) -> Result<(), Error> {
        let Some(found) = self.find_elsewhere(kind, &node.place.name, uid).await? else { return Ok(()) };
        let dependants = self.state.lock().graph.dependants(uid);
        for (dependant, place) in dependants {
            if place.namespace != node.place.namespace {
                continue;
            }
            if let Some(kind) = self.kind_of(&place.ty.api_version, &place.ty.kind, Work::Collect(dependant))
                && let Some(live) = self.live(&kind, &place.namespace, &place.name).await?
            {
                self.report_invalid_namespace(&kind, &live, &found).await?;
            }
        }
        Ok(())
    }
}

fn is_same(live: &ObjectMeta, uid: Uid) -> bool {
    live.uid.as_deref().is_some_and(|text| Uid::new(text) == uid)
}

pub(super) fn has_finalizer(object: &ObjectMeta, name: &str) -> bool {
    object.finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// An object that asks for a certain way already is deleted in that way.
fn policy_of(object: &ObjectMeta) -> PropagationPolicy {
    if has_finalizer(object, ORPHAN) {
        PropagationPolicy::Orphan
    } else if has_finalizer(object, FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_deleted_in_the_way_its_finalizers_ask_for() {
        let table = [
            (vec![], PropagationPolicy::Background),
            (vec!["example.com/other"], PropagationPolicy::Background),
            (vec![FOREGROUND], PropagationPolicy::Foreground),
            (vec![FOREGROUND, ORPHAN], PropagationPolicy::Orphan),
        ];
        for (finalizers, policy) in table {
            let finalizers = finalizers.into_iter().map(str::to_owned).collect();
            assert_eq!(policy_of(&ObjectMeta { finalizers: Some(finalizers), ..ObjectMeta::default() }), policy);
        }
    }
}
