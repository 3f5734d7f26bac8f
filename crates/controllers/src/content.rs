//! Deleting all objects of a kind, in one namespace or everywhere.

use std::collections::BTreeMap;

use croft_reconcile::failure;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, PartialObjectMeta, Preconditions};
use kube::{Api, Client};

use crate::discovery::Kind;

/// One page of a listing; bounds memory.
const PAGE: u32 = 500;
/// Deletions at a time: the store commits those of one moment together.
const AT_A_TIME: usize = 16;

/// What is still there after all was told to go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Remaining {
    pub(crate) objects: usize,
    /// How many objects each finalizer holds.
    pub(crate) finalizers: BTreeMap<String, usize>,
}

impl Remaining {
    fn count(&mut self, object: &ObjectMeta) {
        self.objects += 1;
        for finalizer in object.finalizers.iter().flatten() {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }
}

/// A namespace or a definition that is going, or has gone: what is in it is to go too. Another one may have its name by now.
#[derive(Debug)]
pub(crate) struct Going<'a> {
    pub(crate) api: &'a Api<DynamicObject>,
    pub(crate) name: &'a str,
    /// None once it has gone.
    pub(crate) uid: Option<&'a str>,
}

impl Going<'_> {
    /// Nothing is made in what is going. So whatever was seen before this says yes belongs to nothing that stays: not to another
    /// one of that name, which is yet to come.
    async fn is_so(&self) -> Result<bool, kube::Error> {
        let found = self.api.get_metadata_opt(self.name).await?.map(|found| found.metadata);
        Ok(match (&found, self.uid) {
            (None, None) => true,
            (Some(found), Some(uid)) => found.uid.as_deref() == Some(uid) && found.deletion_timestamp.is_some(),
            _ => false,
        })
    }
}

/// Deletes everything of a kind in a namespace (`""`: in all); tells what is held by finalizers. `None` if there is nothing
/// of `going` to be deleted any more. Dependants go by themselves: the garbage collector sees to it.
pub(crate) async fn clear(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    going: &Going<'_>,
) -> Result<Option<Remaining>, kube::Error> {
    let mut found = 0;
    let mut next = None;
    loop {
        let (page, rest) = list(client, kind, namespace, next).await?;
        if !page.is_empty() && !going.is_so().await? {
            return Ok(None);
        }
        found += page.len();
        let to_delete = page.into_iter().map(|object| object.metadata).filter(|m| m.deletion_timestamp.is_none());
        stream::iter(to_delete)
            .map(|object| delete(client, kind, object))
            .buffer_unordered(AT_A_TIME)
            .try_collect::<()>()
            .await?;
        next = rest;
        if next.is_none() {
            break;
        }
    }
    if found == 0 { Ok(Some(Remaining::default())) } else { remaining(client, kind, namespace).await.map(Some) }
}

async fn remaining(client: &Client, kind: &Kind, namespace: &str) -> Result<Remaining, kube::Error> {
    let mut remaining = Remaining::default();
    let mut next = None;
    loop {
        let (page, rest) = list(client, kind, namespace, next).await?;
        for object in &page {
            remaining.count(&object.metadata);
        }
        next = rest;
        if next.is_none() {
            return Ok(remaining);
        }
    }
}

type Page = (Vec<PartialObjectMeta<DynamicObject>>, Option<String>);

/// A kind that went in the meantime has no objects.
async fn list(client: &Client, kind: &Kind, namespace: &str, next: Option<String>) -> Result<Page, kube::Error> {
    let mut params = ListParams::default().limit(PAGE);
    params.continue_token = next;
    let Some(list) = failure::absent_is_none(kind.api(client, namespace).list_metadata(&params).await)? else {
        return Ok((Vec::new(), None));
    };
    Ok((list.items, list.metadata.continue_.filter(|token| !token.is_empty())))
}

async fn delete(client: &Client, kind: &Kind, object: ObjectMeta) -> Result<(), kube::Error> {
    let (name, namespace) = (object.name.unwrap_or_default(), object.namespace.unwrap_or_default());
    let same = Preconditions { uid: object.uid, resource_version: None };
    match kind.api(client, &namespace).delete(&name, &DeleteParams::background().preconditions(same)).await {
        // Gone, or another object of the same name by now: the next look finds it.
        Err(error) if failure::is_not_found(&error) || failure::is_conflict(&error) => Ok(()),
        result => result.map(drop),
    }
}
