//! A set of fields: a tree of path elements.
//!
//! Membership of a field says nothing about its children or parents, as upstream has it:
//! `{.spec.a}` does not contain `.spec`, and `{.spec}` minus `{.spec.a}` is `{.spec}`. All set algebra
//! is therefore element by element, a merge of two sorted lists at each level.

use std::cmp::Ordering;
use std::mem;

use super::PathElement;

/// A set of paths. No entry is without meaning: each is a member, or has descendants that are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    entries: Vec<Entry>,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub element: PathElement,
    /// Whether the path that ends here is in the set.
    pub member: bool,
    /// The paths that go on from here.
    pub children: Set,
}

impl Entry {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl Set {
    pub fn new() -> Self {
        Self::default()
    }

    /// A set of paths of plain field names.
    pub fn from_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(*name)).collect();
            set.insert(&path);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many paths are in the set.
    pub fn len(&self) -> usize {
        self.entries.iter().map(|e| usize::from(e.member) + e.children.len()).sum()
    }

    /// The first level of the tree, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds a path. The empty path, the object itself, is never owned and is ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.position(first) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, Entry { element: first.clone(), member: false, children: Self::new() });
                at
            }
        };
        if rest.is_empty() {
            self.entries[at].member = true;
        } else {
            self.entries[at].children.insert(rest);
        }
    }

    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        let Ok(at) = self.position(first) else { return false };
        let entry = &self.entries[at];
        if rest.is_empty() { entry.member } else { entry.children.contains(rest) }
    }

    /// The entry of one element of this level.
    pub fn get(&self, element: &PathElement) -> Option<&Entry> {
        self.position(element).ok().map(|at| &self.entries[at])
    }

    fn position(&self, element: &PathElement) -> Result<usize, usize> {
        // Objects iterate in order, so building a set mostly appends.
        match self.entries.last() {
            None => Err(0),
            Some(last) if last.element < *element => Err(self.entries.len()),
            Some(_) => self.entries.binary_search_by(|e| e.element.cmp(element)),
        }
    }

    /// Adds a node that a walk has built; an element that is there already is united with it.
    pub(crate) fn attach(&mut self, element: PathElement, member: bool, children: Self) {
        let entry = Entry { element, member, children };
        if entry.is_empty() {
            return;
        }
        match self.position(&entry.element) {
            Ok(at) => {
                let existing = &mut self.entries[at];
                existing.member |= entry.member;
                existing.children.absorb(entry.children);
            }
            Err(at) => self.entries.insert(at, entry),
        }
    }

    /// Lets `edit` change each entry in place, then drops those that are left without meaning. Elements must
    /// stay as they are.
    pub(crate) fn edit_entries(&mut self, mut edit: impl FnMut(&mut Entry)) {
        self.entries.retain_mut(|entry| {
            edit(entry);
            !entry.is_empty()
        });
    }

    /// What is in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.absorb(other.clone());
        out
    }

    /// Adds all of `other`.
    pub fn absorb(&mut self, other: Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        let mut out = Vec::with_capacity(self.entries.len() + other.entries.len());
        let mut left = mem::take(&mut self.entries).into_iter().peekable();
        let mut right = other.entries.into_iter().peekable();
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) => l.element.cmp(&r.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            match order {
                Ordering::Less => out.extend(left.next()),
                Ordering::Greater => out.extend(right.next()),
                Ordering::Equal => {
                    if let (Some(mut l), Some(r)) = (left.next(), right.next()) {
                        l.member |= r.member;
                        l.children.absorb(r.children);
                        out.push(l);
                    }
                }
            }
        }
        self.entries = out;
    }

    /// What is in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::new();
        for (l, r) in self.common(other) {
            let entry = Entry {
                element: l.element.clone(),
                member: l.member && r.member,
                children: l.children.intersection(&r.children),
            };
            if !entry.is_empty() {
                out.entries.push(entry);
            }
        }
        out
    }

    /// Whether the sets share a path.
    pub fn intersects(&self, other: &Self) -> bool {
        self.common(other).any(|(l, r)| (l.member && r.member) || l.children.intersects(&r.children))
    }

    /// The entries that both sets have at this level.
    fn common<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Entry, &'a Entry)> {
        let (mut i, mut j) = (0, 0);
        std::iter::from_fn(move || {
            while let (Some(l), Some(r)) = (self.entries.get(i), other.entries.get(j)) {
                match l.element.cmp(&r.element) {
                    Ordering::Less => i += 1,
                    Ordering::Greater => j += 1,
                    Ordering::Equal => {
                        i += 1;
                        j += 1;
                        return Some((l, r));
                    }
                }
            }
            None
        })
    }

    /// What is in this set only.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.subtract(other);
        out
    }

    /// Removes every path of `other`.
    pub fn subtract(&mut self, other: &Self) {
        self.subtract_with(other, &mut |entry, removed| {
            entry.member &= !removed.member;
            entry.children.subtract(&removed.children);
        });
    }

    /// What is in this set and neither in `other` nor below a path of `other`.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.subtract_recursively(other);
        out
    }

    /// Removes every path of `other` and all that is below it.
    pub fn subtract_recursively(&mut self, other: &Self) {
        self.subtract_with(other, &mut |entry, removed| {
            if removed.member {
                entry.member = false;
                entry.children = Self::new();
            } else {
                entry.children.subtract_recursively(&removed.children);
            }
        });
    }

    fn subtract_with(&mut self, other: &Self, reduce: &mut dyn FnMut(&mut Entry, &Entry)) {
        if self.is_empty() || other.is_empty() {
            return;
        }
        let mut removals = other.entries.iter().peekable();
        self.entries.retain_mut(|entry| {
            while removals.next_if(|r| r.element < entry.element).is_some() {}
            if let Some(removed) = removals.next_if(|r| r.element == entry.element) {
                reduce(entry, removed);
            }
            !entry.is_empty()
        });
    }

    /// The paths that are not a prefix of another path of the set.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let entries = self.entries.iter().map(|e| Entry {
            element: e.element.clone(),
            member: e.member && e.children.is_empty(),
            children: e.children.leaves(),
        });
        Self { entries: entries.collect() }
    }

    /// Calls `visit` with every path: at each level its members first, then what is below them, which is the order
    /// in which conflicts are listed.
    pub fn for_each(&self, visit: &mut dyn FnMut(&[PathElement])) {
        self.walk(&mut Vec::new(), visit);
    }

    fn walk(&self, prefix: &mut Vec<PathElement>, visit: &mut dyn FnMut(&[PathElement])) {
        for entry in self.entries.iter().filter(|e| e.member) {
            prefix.push(entry.element.clone());
            visit(prefix);
            prefix.pop();
        }
        for entry in self.entries.iter().filter(|e| !e.children.is_empty()) {
            prefix.push(entry.element.clone());
            entry.children.walk(prefix, visit);
            prefix.pop();
        }
    }

    /// Every path, in the order of [`Set::for_each`].
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut out = Vec::new();
        self.for_each(&mut |path| out.push(path.to_vec()));
        out
    }
}

impl FromIterator<Vec<PathElement>> for Set {
    fn from_iter<I: IntoIterator<Item = Vec<PathElement>>>(paths: I) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path);
        }
        set
    }
}
