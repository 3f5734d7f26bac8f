//! Removing what a manager applied before and does not any more.

use serde_json::Value;

use crate::fieldpath::Set;
use crate::managed::{Manager, Managers};
use crate::typed::{Node, add_named_parents, field_set, remove_items};

/// Takes out of `merged` what `last` owned, unless the new configuration or another manager owns it, too.
pub(super) fn prune(node: Node<'_>, merged: Value, last: &Manager, now: &Manager, others: &Managers) -> Value {
    let with_parents = |mut set: Set| {
        add_named_parents(node, &mut set);
        set
    };
    let last_fields = with_parents(last.fields.clone());
    let all_fields = with_parents(field_set(node, &merged));
    let mut owned = now.fields.clone();
    for manager in &others.0 {
        owned.absorb(manager.fields.clone());
    }
    let owned = with_parents(owned);

    let mut pruned = merged.clone();
    remove_items(node, &mut pruned, &last_fields);

    // Removing a parent took children with it that somebody owns.
    let mut unowned = all_fields.clone();
    unowned.subtract(&with_parents(field_set(node, &pruned)));
    unowned.subtract(&owned);
    let mut pruned = merged.clone();
    remove_items(node, &mut pruned, &unowned);

    // It also took children that nobody owns, and that are not this manager's to remove.
    let mut removable = all_fields;
    removable.subtract(&with_parents(field_set(node, &pruned)));
    let removable = removable.intersection(&last_fields);
    let mut pruned = merged;
    remove_items(node, &mut pruned, &removable);
    pruned
}
