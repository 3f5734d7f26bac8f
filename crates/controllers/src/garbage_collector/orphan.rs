//! Owners whose dependants are to stay.

use std::sync::Arc;

use croft_reconcile::Error;
use futures::{StreamExt, TryStreamExt, stream};

use super::Collector;
use super::graph::{ORPHAN, Place, Uid, Work};

/// How many dependants are freed at a time.
const AT_A_TIME: usize = 16;

impl Collector {
    pub(super) async fn orphan(&self, owner: Uid) -> Result<(), Error> {
        let Some(node) = self.state.lock().graph.view(owner) else { return Ok(()) };
        let work = Work::Orphan(owner);
        let ty = Arc::clone(&node.place.ty);
        let Some(kind) = self.kind_of(&ty.api_version, &ty.kind, work) else { return Ok(()) };
        let dependants = self.state.lock().graph.dependants(owner);
        stream::iter(dependants)
            .map(|(_, place)| self.free(owner, place))
            .buffer_unordered(AT_A_TIME)
            .try_collect::<()>()
            .await?;
        self.remove_finalizer(&kind, &node.place, owner, ORPHAN).await
    }

    async fn free(&self, owner: Uid, dependant: Place) -> Result<(), Error> {
        let ty = &dependant.ty;
        let Some(kind) = self.kind_of(&ty.api_version, &ty.kind, Work::Orphan(owner)) else {
            return Err(Error::NotYet(format!("{} {} is of an unknown kind", ty.kind, dependant.name)));
        };
        let Some(live) = self.live(&kind, &dependant.namespace, &dependant.name).await? else { return Ok(()) };
        let references = live.owner_references.iter().flatten();
        let same: Vec<String> = references.map(|r| r.uid.clone()).filter(|uid| Uid::new(uid) == owner).collect();
        if same.is_empty() {
            return Ok(());
        }
        self.drop_owners(&kind, &live, &same).await
    }
}
