//! Who owns whom. Pure: events go in, work comes out.
//!
//! Only objects that matter are in here: those with owners, those that others name as owners, and those that wait for
//! their dependants. An owner that has only been heard of is *presumed* until the server confirms it.

use croft_reconcile::{Meta, OwnerReference};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// A UID in a third of the room of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Uid(u128);

impl Uid {
    /// UIDs that the server made are UUIDs. Users may write anything into a reference: that is hashed, as nothing is ever
    /// done to an object on the word of the graph alone.
    pub(super) fn new(text: &str) -> Self {
        Self(parse_uuid(text).unwrap_or_else(|| {
            let half = |salt: u8| {
                let mut hasher = DefaultHasher::new();
                (salt, text).hash(&mut hasher);
                u128::from(hasher.finish())
            };
            half(0) << 64 | half(1)
        }))
    }
}

/// Only the form that servers write; another spelling would be another UID.
fn parse_uuid(text: &str) -> Option<u128> {
    let is_canonical = text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        });
    if !is_canonical {
        return None;
    }
    u128::from_str_radix(&text.replace('-', ""), 16).ok()
}

/// An `apiVersion` and `kind`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Type {
    pub(super) kind: Box<str>,
    pub(super) api_version: Box<str>,
}

/// Where an object is, or is said to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) ty: Arc<Type>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reference {
    uid: Uid,
    ty: Arc<Type>,
    name: Box<str>,
    is_blocking: bool,
}

#[derive(Debug)]
struct Node {
    place: Place,
    owners: Box<[Reference]>,
    dependants: HashSet<Uid>,
    is_presumed: bool,
    is_being_deleted: bool,
    /// Deleted in the foreground: goes when no blocking dependant is left.
    awaits_dependants: bool,
    is_orphaning: bool,
    /// The listing of its kind that it was last part of.
    listing: u32,
}

impl Node {
    fn new(place: Place) -> Self {
        Self {
            place,
            owners: Box::default(),
            dependants: HashSet::new(),
            is_presumed: false,
            is_being_deleted: false,
            awaits_dependants: false,
            is_orphaning: false,
            listing: 0,
        }
    }

    fn matters(&self) -> bool {
        !self.owners.is_empty() || !self.dependants.is_empty() || self.awaits_dependants || self.is_orphaning
    }
}

/// Something to look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    /// Perhaps this is to be deleted, or can now go.
    Collect(Uid),
    /// Free this one's dependants, then let it go.
    Orphan(Uid),
}

/// What the collector needs to know of a node.
#[derive(Debug)]
pub(super) struct View {
    pub(super) place: Place,
    pub(super) is_presumed: bool,
    pub(super) is_being_deleted: bool,
    pub(super) awaits_dependants: bool,
    pub(super) has_dependants: bool,
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    types: HashSet<Arc<Type>>,
    listings: HashMap<Arc<Type>, u32>,
}

impl Graph {
    /// One copy of each type is enough.
    pub(super) fn intern(&mut self, api_version: &str, kind: &str) -> Arc<Type> {
        let ty = Type { kind: kind.into(), api_version: api_version.into() };
        if let Some(known) = self.types.get(&ty) {
            return Arc::clone(known);
        }
        let ty = Arc::new(ty);
        self.types.insert(Arc::clone(&ty));
        ty
    }

    pub(super) fn view(&self, uid: Uid) -> Option<View> {
        self.nodes.get(&uid).map(|node| View {
            place: node.place.clone(),
            is_presumed: node.is_presumed,
            is_being_deleted: node.is_being_deleted,
            awaits_dependants: node.awaits_dependants,
            has_dependants: !node.dependants.is_empty(),
        })
    }

    pub(super) fn dependants(&self, uid: Uid) -> Vec<(Uid, Place)> {
        self.dependants_of(uid).map(|(uid, node)| (uid, node.place.clone())).collect()
    }

    /// Whether a dependant itself waits for its dependants: there may be a circle.
    pub(super) fn has_waiting_dependant(&self, uid: Uid) -> bool {
        self.dependants_of(uid).any(|(_, node)| node.awaits_dependants)
    }

    /// Those that the owner must wait for, and whether they are on their way already.
    pub(super) fn blocking_dependants(&self, owner: Uid) -> Vec<(Uid, bool)> {
        let blocks = |node: &Node| node.owners.iter().any(|r| r.uid == owner && r.is_blocking);
        let blocking = self.dependants_of(owner).filter(|(_, node)| blocks(node));
        blocking.map(|(uid, node)| (uid, node.is_being_deleted)).collect()
    }

    fn dependants_of(&self, uid: Uid) -> impl Iterator<Item = (Uid, &Node)> {
        let uids = self.nodes.get(&uid).into_iter().flat_map(|node| &node.dependants);
        uids.filter_map(|uid| self.nodes.get(uid).map(|node| (*uid, node)))
    }

    /// A listing of all objects of a type begins.
    pub(super) fn begin_listing(&mut self, ty: &Arc<Type>) {
        *self.listings.entry(Arc::clone(ty)).or_default() += 1;
    }

    /// The listing is complete: what was not in it may have gone unseen.
    pub(super) fn end_listing(&mut self, ty: &Arc<Type>) -> Vec<Work> {
        let listing = self.listing(ty);
        let mut work = Vec::new();
        for (uid, node) in &mut self.nodes {
            if node.place.ty == *ty && node.listing != listing && !node.is_presumed {
                node.is_presumed = true;
                work.push(Work::Collect(*uid));
            }
        }
        work
    }

    fn listing(&self, ty: &Arc<Type>) -> u32 {
        self.listings.get(ty).copied().unwrap_or_default()
    }

    /// An object was seen.
    pub(super) fn observe(&mut self, ty: &Arc<Type>, object: &Meta) -> Vec<Work> {
        let uid = Uid::new(&object.uid);
        if object.owner_references.is_empty() && !object.is_being_deleted() && !self.nodes.contains_key(&uid) {
            return Vec::new();
        }
        let place = Place { ty: Arc::clone(ty), namespace: object.namespace.clone(), name: object.name.clone() };
        let mut work = self.locate(uid, &place);
        let owners = self.read_references(&object.owner_references);
        self.change_owners(uid, &owners, &mut work);
        self.change_deletion(uid, object, &mut work);
        self.forget_if_irrelevant(uid);
        work
    }

    /// An owner that was only presumed is there; where it is seen no more by now, nothing changes.
    pub(super) fn confirm(&mut self, ty: &Arc<Type>, object: &Meta) -> Vec<Work> {
        let is_presumed = self.nodes.get(&Uid::new(&object.uid)).is_some_and(|node| node.is_presumed);
        if is_presumed { self.observe(ty, object) } else { Vec::new() }
    }

    /// Puts the node where the object was seen. Dependants that look for it elsewhere may be wrong about it.
    fn locate(&mut self, uid: Uid, place: &Place) -> Vec<Work> {
        let listing = self.listing(&place.ty);
        let node = self.nodes.entry(uid).or_insert_with(|| Node::new(place.clone()));
        node.listing = listing;
        let was_presumed = std::mem::replace(&mut node.is_presumed, false);
        if !was_presumed || node.place == *place {
            return Vec::new();
        }
        node.place = place.clone();
        let (_, mistaken) = self.partition(uid, place);
        mistaken.into_iter().map(Work::Collect).collect()
    }

    fn change_owners(&mut self, uid: Uid, new: &[Reference], work: &mut Vec<Work>) {
        let Some(node) = self.nodes.get_mut(&uid) else { return };
        if *node.owners == *new {
            return;
        }
        let old = std::mem::replace(&mut node.owners, new.into());
        let namespace = node.place.namespace.clone();
        for reference in old.iter().filter(|r| r.is_blocking) {
            if !new.iter().any(|r| r.uid == reference.uid && r.is_blocking) {
                work.push(Work::Collect(reference.uid));
            }
        }
        let mut is_doubtful = false;
        for reference in new.iter().filter(|r| !old.iter().any(|o| o.uid == r.uid)) {
            is_doubtful |= self.add_dependant(reference, uid, &namespace, work);
        }
        if is_doubtful {
            work.push(Work::Collect(uid));
        }
        for reference in old.iter().filter(|r| !new.iter().any(|n| n.uid == r.uid)) {
            self.remove_dependant(reference.uid, uid);
        }
    }

    /// True if the reference does not fit what is known of the owner.
    fn add_dependant(&mut self, owner: &Reference, dependant: Uid, namespace: &str, work: &mut Vec<Work>) -> bool {
        if let Some(node) = self.nodes.get_mut(&owner.uid) {
            node.dependants.insert(dependant);
            let at = &node.place;
            let is_elsewhere = !at.namespace.is_empty() && *at.namespace != *namespace;
            let is_other = at.ty != owner.ty || at.name != owner.name;
            let is_unclear = node.is_presumed && *at.namespace != *namespace;
            return is_elsewhere || is_other || is_unclear;
        }
        let place = Place { ty: Arc::clone(&owner.ty), namespace: namespace.into(), name: owner.name.clone() };
        let mut node = Node::new(place);
        node.is_presumed = true;
        node.dependants.insert(dependant);
        self.nodes.insert(owner.uid, node);
        work.push(Work::Collect(owner.uid));
        false
    }

    fn remove_dependant(&mut self, owner: Uid, dependant: Uid) {
        if let Some(node) = self.nodes.get_mut(&owner) {
            node.dependants.remove(&dependant);
            self.forget_if_irrelevant(owner);
        }
    }

    fn change_deletion(&mut self, uid: Uid, object: &Meta, work: &mut Vec<Work>) {
        let Some(node) = self.nodes.get_mut(&uid) else { return };
        node.is_being_deleted = object.is_being_deleted();
        let is_orphaning = node.is_being_deleted && object.has_finalizer(ORPHAN);
        let awaits = node.is_being_deleted && object.has_finalizer(FOREGROUND);
        let begins_orphaning = !std::mem::replace(&mut node.is_orphaning, is_orphaning) && is_orphaning;
        let begins_waiting = !std::mem::replace(&mut node.awaits_dependants, awaits) && awaits;
        if begins_orphaning {
            work.push(Work::Orphan(uid));
        } else if begins_waiting {
            work.extend(node.dependants.iter().copied().map(Work::Collect));
            work.push(Work::Collect(uid));
        }
    }

    /// An object went.
    pub(super) fn remove(&mut self, uid: Uid) -> Vec<Work> {
        let Some(node) = self.nodes.remove(&uid) else { return Vec::new() };
        let mut work: Vec<Work> = node.dependants.into_iter().map(Work::Collect).collect();
        for owner in &node.owners {
            if self.nodes.get(&owner.uid).is_some_and(|node| node.awaits_dependants) {
                work.push(Work::Collect(owner.uid));
            }
            self.remove_dependant(owner.uid, uid);
        }
        work
    }

    /// The server says that there is no such object at this place.
    pub(super) fn absent(&mut self, uid: Uid, place: &Place) -> Vec<Work> {
        let Some(node) = self.nodes.get(&uid) else { return Vec::new() };
        let (matching, others) = self.partition(uid, place);
        if !node.is_presumed && node.place != *place {
            return matching.into_iter().map(Work::Collect).collect();
        }
        if !node.is_presumed || others.is_empty() {
            return self.remove(uid);
        }
        // Dependants disagree on where their owner is: try the next of their opinions.
        let next = self.alternative(uid, &others, place);
        let mut work: Vec<Work> = matching.into_iter().map(Work::Collect).collect();
        let Some(node) = self.nodes.get_mut(&uid) else { return work };
        if let Some(next) = next.filter(|_| node.place == *place) {
            node.place = next;
            work.push(Work::Collect(uid));
        }
        work
    }

    /// The dependants that look for their owner at this place, and those that look elsewhere.
    fn partition(&self, owner: Uid, place: &Place) -> (Vec<Uid>, Vec<Uid>) {
        let (mut matching, mut others) = (Vec::new(), Vec::new());
        for (uid, node) in self.dependants_of(owner) {
            let is_near = place.namespace.is_empty() || place.namespace == node.place.namespace;
            let mut references = node.owners.iter().filter(|r| r.uid == owner);
            if is_near && references.any(|r| r.ty == place.ty && r.name == place.name) {
                matching.push(uid);
            } else {
                others.push(uid);
            }
        }
        (matching, others)
    }

    /// The opinion that follows `place` in order, or else the first.
    fn alternative(&self, owner: Uid, dependants: &[Uid], place: &Place) -> Option<Place> {
        let nodes = dependants.iter().filter_map(|uid| self.nodes.get(uid));
        let opinions: BTreeSet<Place> = nodes
            .flat_map(|node| node.owners.iter().filter(|r| r.uid == owner).map(move |r| (node, r)))
            .map(|(node, r)| Place {
                ty: Arc::clone(&r.ty),
                namespace: node.place.namespace.clone(),
                name: r.name.clone(),
            })
            .filter(|opinion| opinion != place)
            .collect();
        opinions.iter().find(|opinion| *opinion > place).or_else(|| opinions.first()).cloned()
    }

    fn forget_if_irrelevant(&mut self, uid: Uid) {
        if self.nodes.get(&uid).is_some_and(|node| !node.matters()) {
            self.nodes.remove(&uid);
        }
    }

    fn read_references(&mut self, references: &[OwnerReference]) -> Box<[Reference]> {
        let read = references.iter().map(|reference| Reference {
            uid: Uid::new(&reference.uid),
            ty: self.intern(&reference.api_version, &reference.kind),
            name: reference.name.clone(),
            is_blocking: reference.block_owner_deletion == Some(true),
        });
        read.collect()
    }
}

#[cfg(test)]
mod tests;
