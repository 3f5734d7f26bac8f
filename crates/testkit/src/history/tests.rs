use super::*;
use crate::linearizability::object::Action;

fn change(key: &str, value: Option<u64>, revision: u64) -> Change {
    Change { key: key.to_owned(), value, revision }
}

fn done(call: u64, end: u64, action: Action, revision: u64) -> Operation<Op> {
    Operation { call, end: Some(end), op: Op { action, outcome: Outcome::Done { revision: Some(revision) } } }
}

/// Two keys, one of them written, overwritten by somebody who got no answer, and deleted.
fn sound() -> History {
    let unanswered =
        Op { action: Action::Update { value: 2, expected: None }, outcome: Outcome::Unknown { revision: None } };
    let a = vec![
        done(1, 2, Action::Create { value: 1 }, 10),
        Operation { call: 3, end: None, op: unanswered },
        done(7, 8, Action::Delete, 13),
    ];
    let b = vec![done(5, 6, Action::Create { value: 3 }, 12)];
    let truth =
        vec![change("a", Some(1), 10), change("a", Some(2), 11), change("b", Some(3), 12), change("a", None, 13)];
    let items = BTreeMap::from([("a".to_owned(), (2, 11)), ("b".to_owned(), (3, 12))]);
    History {
        operations: BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]),
        lists: vec![Listed { call: 7, end: 9, prefix: String::new(), revision: 12, items }],
        watches: vec![Watched { name: "a watch".to_owned(), from: 10, changes: truth[1..].to_vec() }],
        truth,
    }
}

#[test]
fn a_sound_history_passes_and_is_counted() {
    let figures = sound().check().unwrap();
    assert_eq!((figures.keys, figures.operations, figures.acknowledged), (2, 4, 3));
    assert_eq!((figures.unanswered, figures.unanswered_done, figures.lists, figures.watched), (1, 1, 1, 3));
}

#[test]
fn each_fault_is_found() {
    type Fault = fn(&mut History);
    let faults: [(Fault, &str); 13] = [
        (|h| drop(h.truth.remove(2)), "but the store has None"),
        (|h| h.truth[2].revision = 15, "the store's own history goes back"),
        (|h| h.truth.push(change("a", Some(2), 14)), "done twice"),
        (|h| h.truth.push(change("c", Some(9), 14)), "nobody asked for"),
        (|h| h.truth[1].key = "b".to_owned(), "but the store has Some"),
        (|h| drop(h.watches[0].changes.remove(1)), "instead of"),
        (|h| h.watches[0].changes.insert(1, change("a", Some(2), 11)), "instead of"),
        (|h| h.watches[0].changes.push(change("b", None, 14)), "which did not happen"),
        (|h| drop(h.watches[0].changes.pop()), "a watch from 10: None instead of"),
        (|h| h.lists[0].items.retain(|key, _| key != "a"), "a list of"),
        (|h| h.lists[0].revision = 11, "a list at 11, called after"),
        (|h| h.operations.get_mut("b").unwrap()[0].op.outcome = Outcome::AlreadyExists, "not linearizable"),
        (|h| h.operations.get_mut("b").unwrap()[0].call = 9, "b at 12, called after a was told 13"),
    ];
    for (fault, expected) in faults {
        let mut history = sound();
        fault(&mut history);
        // An end is after its call.
        for operation in history.operations.values_mut().flatten() {
            operation.end = operation.end.map(|end| end.max(operation.call + 1));
        }
        let wrong = history.check().expect_err(expected);
        assert!(wrong.iter().any(|what| what.contains(expected)), "{expected}: {wrong:#?}");
    }
}
