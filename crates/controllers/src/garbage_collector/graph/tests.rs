use super::*;

struct World {
    graph: Graph,
    ty: Arc<Type>,
}

fn uid(number: u8) -> String {
    format!("00000000-0000-4000-8000-0000000000{number:02x}")
}

fn id(number: u8) -> Uid {
    Uid::new(&uid(number))
}

impl World {
    fn new() -> Self {
        let mut graph = Graph::default();
        let ty = graph.intern("v1", "ConfigMap");
        Self { graph, ty }
    }

    fn see(&mut self, object: &Meta) -> Vec<Work> {
        self.graph.observe(&Arc::clone(&self.ty), object)
    }

    fn place(&self, namespace: &str, name: &str) -> Place {
        Place { ty: Arc::clone(&self.ty), namespace: namespace.into(), name: name.into() }
    }
}

fn object(number: u8, owners: &[u8]) -> Meta {
    meta(number, "ns", owners, &[], false)
}

fn meta(number: u8, namespace: &str, owners: &[u8], finalizers: &[&str], is_deleted: bool) -> Meta {
    let references: Vec<serde_json::Value> = owners
        .iter()
        .map(|owner| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": format!("object-{owner}"), "uid": uid(*owner),
                "blockOwnerDeletion": true,
            })
        })
        .collect();
    let mut object = serde_json::json!({
        "name": format!("object-{number}"), "namespace": namespace, "uid": uid(number),
        "ownerReferences": references, "finalizers": finalizers,
    });
    if is_deleted {
        object["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    serde_json::from_value(object).unwrap()
}

fn collect(numbers: &[u8]) -> Vec<Work> {
    numbers.iter().map(|number| Work::Collect(id(*number))).collect()
}

fn sorted(mut work: Vec<Work>) -> Vec<Work> {
    work.sort();
    work
}

#[test]
fn objects_without_relations_take_no_room() {
    let mut world = World::new();
    assert_eq!(world.see(&object(1, &[])), []);
    assert_eq!(world.see(&meta(2, "ns", &[], &["example.com/hold"], true)), []);
    assert!(world.graph.nodes.is_empty());
}

#[test]
fn an_owner_that_was_not_seen_is_verified() {
    let mut world = World::new();
    assert_eq!(world.see(&object(2, &[1])), collect(&[1]));
    assert!(world.graph.view(id(1)).unwrap().is_presumed);
    assert_eq!(world.see(&object(3, &[1])), [], "asked once");
    let ty = Arc::clone(&world.ty);
    assert_eq!(world.graph.confirm(&ty, &object(1, &[])), []);
    assert!(!world.graph.view(id(1)).unwrap().is_presumed);
}

#[test]
fn dependants_of_an_absent_owner_are_collected() {
    let mut world = World::new();
    world.see(&object(2, &[1]));
    let place = world.place("ns", "object-1");
    assert_eq!(world.graph.absent(id(1), &place), collect(&[2]));
    assert!(world.graph.view(id(1)).is_none());
}

#[test]
fn dependants_of_a_deleted_owner_are_collected_and_leave_nothing_behind() {
    let mut world = World::new();
    world.see(&object(2, &[1]));
    world.see(&object(3, &[1]));
    world.see(&object(1, &[]));
    assert_eq!(sorted(world.graph.remove(id(1))), collect(&[2, 3]));
    assert_eq!(world.graph.remove(id(2)), []);
    assert_eq!(world.graph.remove(id(3)), []);
    assert!(world.graph.nodes.is_empty());
}

#[test]
fn an_owner_is_forgotten_with_its_last_dependant() {
    let mut world = World::new();
    world.see(&object(2, &[1]));
    world.see(&object(1, &[]));
    world.graph.remove(id(2));
    assert!(world.graph.nodes.is_empty());
}

#[test]
fn confirming_an_owner_that_went_in_the_meantime_changes_nothing() {
    let mut world = World::new();
    world.see(&object(2, &[1]));
    world.graph.remove(id(1));
    let ty = Arc::clone(&world.ty);
    assert_eq!(world.graph.confirm(&ty, &object(1, &[])), []);
    assert!(world.graph.view(id(1)).is_none());
}

#[test]
fn foreground_deletion_begins_once_and_waits_for_those_that_block() {
    let mut world = World::new();
    world.see(&object(2, &[1]));
    world.see(&object(1, &[]));
    let waiting = meta(1, "ns", &[], &[FOREGROUND], true);
    assert_eq!(sorted(world.see(&waiting)), collect(&[1, 2]));
    assert_eq!(world.see(&waiting), []);
    assert_eq!(world.graph.blocking_dependants(id(1)), [(id(2), false)]);
    world.see(&meta(2, "ns", &[1], &["example.com/hold"], true));
    assert_eq!(world.graph.blocking_dependants(id(1)), [(id(2), true)]);
    assert_eq!(world.graph.remove(id(2)), collect(&[1]));
    assert_eq!(world.graph.blocking_dependants(id(1)), []);
}

#[test]
fn foreground_deletion_of_an_unrelated_object_is_seen() {
    let mut world = World::new();
    assert_eq!(world.see(&meta(1, "ns", &[], &[FOREGROUND], true)), collect(&[1]));
    assert!(world.graph.view(id(1)).unwrap().awaits_dependants);
    world.graph.remove(id(1));
    assert!(world.graph.nodes.is_empty());
}

#[test]
fn a_reference_that_no_longer_blocks_frees_its_owner() {
    let mut world = World::new();
    world.see(&object(2, &[1]));
    world.see(&meta(1, "ns", &[], &[FOREGROUND], true));
    let mut free = object(2, &[1]);
    free.owner_references[0].block_owner_deletion = Some(false);
    assert_eq!(world.see(&free), collect(&[1]));
    assert_eq!(world.graph.blocking_dependants(id(1)), []);
    assert_eq!(world.graph.dependants(id(1)).len(), 1);
}

#[test]
fn orphaning_begins_once() {
    let mut world = World::new();
    world.see(&object(2, &[1]));
    let orphaning = meta(1, "ns", &[], &[ORPHAN], true);
    assert_eq!(world.see(&orphaning), [Work::Orphan(id(1))]);
    assert_eq!(world.see(&orphaning), []);
    assert_eq!(world.see(&object(2, &[])), collect(&[1]), "a blocking reference went");
    assert!(world.graph.dependants(id(1)).is_empty());
}

#[test]
fn an_owner_in_another_namespace_makes_its_dependant_doubtful() {
    let mut world = World::new();
    world.see(&object(2, &[1]));
    world.see(&object(1, &[]));
    assert_eq!(world.see(&meta(3, "other", &[1], &[], false)), collect(&[3]));

    // And the other way round: the dependant is known first.
    let mut world = World::new();
    world.see(&meta(3, "other", &[1], &[], false));
    assert_eq!(world.see(&object(1, &[])), collect(&[3]));
}

#[test]
fn dependants_that_disagree_on_their_owner_are_each_heard() {
    let mut world = World::new();
    world.see(&object(2, &[1]));
    world.see(&meta(3, "other", &[1], &[], false));
    let first = world.place("ns", "object-1");
    assert_eq!(sorted(world.graph.absent(id(1), &first)), collect(&[1, 2]));
    let view = world.graph.view(id(1)).unwrap();
    assert_eq!(view.place, world.place("other", "object-1"));
    assert!(view.is_presumed);
}

#[test]
fn what_a_new_listing_lacks_is_verified() {
    let mut world = World::new();
    let ty = Arc::clone(&world.ty);
    world.graph.begin_listing(&ty);
    world.see(&object(1, &[]));
    world.see(&object(2, &[1]));
    world.see(&object(1, &[]));
    assert_eq!(world.graph.end_listing(&ty), []);
    world.graph.begin_listing(&ty);
    world.see(&object(2, &[1]));
    assert_eq!(world.graph.end_listing(&ty), collect(&[1]));
    assert!(world.graph.view(id(1)).unwrap().is_presumed);
}

#[test]
fn circles_are_noticed() {
    let mut world = World::new();
    world.see(&object(1, &[2]));
    world.see(&object(2, &[1]));
    assert!(!world.graph.has_waiting_dependant(id(2)));
    world.see(&meta(1, "ns", &[2], &[FOREGROUND], true));
    assert!(world.graph.has_waiting_dependant(id(2)));
}

#[test]
fn only_canonical_uuids_are_read_as_numbers() {
    assert_eq!(parse_uuid("00000000-0000-4000-8000-0000000000ff"), Some(0x4000_8000_0000_0000_00ff));
    for text in ["00000000-0000-4000-8000-0000000000FF", "", "abc", "00000000-0000-4000-8000-00000000-0ff"] {
        assert_eq!(parse_uuid(text), None, "{text}");
    }
    assert_ne!(Uid::new("abc"), Uid::new("abd"));
    assert_ne!(Uid::new("00000000-0000-4000-8000-0000000000FF"), id(0xff));
}
