use proptest::prelude::*;

use super::object::{Action, Object, Op, Outcome};
use super::*;

const BUDGET: u64 = 1_000_000;

fn operation(call: u64, end: u64, action: Action, outcome: Outcome) -> Operation<Op> {
    Operation { call, end: Some(end), op: Op { action, outcome } }
}

fn unanswered(call: u64, action: Action) -> Operation<Op> {
    Operation { call, end: None, op: Op { action, outcome: Outcome::Unknown { revision: None } } }
}

fn create(value: u64) -> Action {
    Action::Create { value }
}

fn update(value: u64, expected: u64) -> Action {
    Action::Update { value, expected: Some(expected) }
}

fn overwrite(value: u64) -> Action {
    Action::Update { value, expected: None }
}

fn done(revision: u64) -> Outcome {
    Outcome::Done { revision: Some(revision) }
}

fn found(value: u64, revision: u64) -> Outcome {
    Outcome::Found { value, revision }
}

fn is_linearizable(history: &[Operation<Op>]) -> bool {
    match check(&Object, history, BUDGET) {
        Verdict::Linearizable(_) => true,
        Verdict::Impossible { .. } => false,
        Verdict::Undecided { steps } => panic!("not decided within {steps} steps"),
    }
}

#[test]
fn what_can_be_put_in_order_is_accepted() {
    let histories = [
        vec![],
        // One after the other.
        vec![
            operation(1, 2, Action::Get, Outcome::NotFound),
            operation(3, 4, create(1), done(10)),
            operation(5, 6, create(2), Outcome::AlreadyExists),
            operation(7, 8, update(3, 10), done(11)),
            operation(9, 10, update(4, 10), Outcome::Conflict),
            operation(11, 12, Action::Get, found(3, 11)),
            operation(13, 14, Action::Delete, Outcome::Done { revision: None }),
            operation(15, 16, overwrite(5), Outcome::NotFound),
            operation(17, 18, create(6), done(13)),
        ],
        // Of two updates at the same time, one wins; a read beside them may see either.
        vec![
            operation(1, 2, create(1), done(10)),
            operation(3, 9, update(2, 10), done(11)),
            operation(4, 8, update(3, 10), Outcome::Conflict),
            operation(5, 7, Action::Get, found(1, 10)),
            operation(6, 10, Action::Get, found(2, 11)),
        ],
        // A write without an answer is seen late, after others have not seen it.
        vec![
            operation(1, 2, create(1), done(10)),
            unanswered(3, overwrite(2)),
            operation(4, 5, Action::Get, found(1, 10)),
            operation(6, 7, Action::Get, found(2, 12)),
            operation(8, 9, update(3, 12), done(13)),
        ],
        // Or never.
        vec![
            operation(1, 2, create(1), done(10)),
            unanswered(3, Action::Delete),
            operation(4, 5, Action::Get, found(1, 10)),
            operation(6, 7, update(3, 10), done(11)),
        ],
        // Or is seen by nobody, but in what it does to others.
        vec![
            operation(1, 2, create(1), done(10)),
            unanswered(3, update(2, 10)),
            operation(4, 5, update(3, 10), Outcome::Conflict),
        ],
    ];
    for history in histories {
        assert!(is_linearizable(&history), "{history:#?}");
    }
}

#[test]
fn what_cannot_be_put_in_order_is_refused() {
    let histories = [
        // An update is lost: both had the same revision in mind.
        vec![
            operation(1, 2, create(1), done(10)),
            operation(3, 6, update(2, 10), done(11)),
            operation(4, 5, update(3, 10), done(12)),
        ],
        // A stale read.
        vec![
            operation(1, 2, create(1), done(10)),
            operation(3, 4, overwrite(2), done(11)),
            operation(5, 6, Action::Get, found(1, 10)),
        ],
        // A write is seen, then unseen.
        vec![
            operation(1, 2, create(1), done(10)),
            operation(3, 9, overwrite(2), done(11)),
            operation(4, 5, Action::Get, found(2, 11)),
            operation(6, 7, Action::Get, found(1, 10)),
        ],
        // The same of one that was never answered.
        vec![
            operation(1, 2, create(1), done(10)),
            unanswered(3, overwrite(2)),
            operation(4, 5, Action::Get, found(2, 11)),
            operation(6, 7, Action::Get, found(1, 10)),
        ],
        // It is seen before it was called.
        vec![
            operation(1, 2, create(1), done(10)),
            operation(3, 4, Action::Get, found(2, 11)),
            unanswered(5, overwrite(2)),
        ],
        // A write without an answer is done twice.
        vec![
            operation(1, 2, create(1), done(10)),
            unanswered(3, overwrite(2)),
            operation(4, 5, Action::Get, found(2, 11)),
            operation(6, 7, overwrite(3), done(12)),
            operation(8, 9, Action::Get, found(2, 13)),
        ],
        // What was acknowledged is gone.
        vec![operation(1, 2, create(1), done(10)), operation(3, 4, Action::Get, Outcome::NotFound)],
        // Created twice.
        vec![operation(1, 2, create(1), done(10)), operation(3, 4, create(2), done(11))],
        // A revision goes back.
        vec![operation(1, 2, create(1), done(10)), operation(3, 4, overwrite(2), done(9))],
        // A conflict with nobody.
        vec![operation(1, 2, create(1), done(10)), operation(3, 4, update(2, 10), Outcome::Conflict)],
        // Deleted twice.
        vec![
            operation(1, 2, create(1), done(10)),
            operation(3, 4, Action::Delete, done(11)),
            operation(5, 6, Action::Delete, done(12)),
        ],
    ];
    for history in histories {
        assert!(!is_linearizable(&history), "{history:#?}");
    }
}

#[test]
fn the_operation_that_does_not_fit_is_named() {
    let history = [
        operation(1, 2, create(1), done(10)),
        operation(3, 4, overwrite(2), done(11)),
        operation(5, 6, Action::Get, found(1, 10)),
    ];
    assert_eq!(check(&Object, &history, BUDGET), Verdict::Impossible { longest: vec![0, 1], stuck: 2 });
}

#[test]
fn a_budget_that_does_not_suffice_is_no_pass() {
    let history: Vec<_> = (0..4).map(|n| operation(1, 9, create(n), done(10 + n))).collect();
    assert_eq!(check(&Object, &history, 2), Verdict::Undecided { steps: 2 });
}

#[test]
fn long_histories_are_decided_quickly() {
    let mut history = vec![operation(0, 1, create(0), done(10))];
    for n in 1..5_000_u64 {
        // Eight at a time, and now and then one without an answer.
        let (call, end) = (n * 10, n * 10 + 75);
        history.push(operation(call, end, overwrite(n), done(10 + n)));
        if n % 500 == 0 {
            history.push(unanswered(call, overwrite(100_000 + n)));
        }
    }
    assert!(is_linearizable(&history));
}

/// Every order, one after the other.
fn brute_force(state: object::State, history: &[Operation<Op>], left: &[usize]) -> bool {
    if left.iter().all(|n| history[*n].end.is_none()) {
        return true;
    }
    let first_end = left.iter().filter_map(|n| history[*n].end).min().unwrap_or(u64::MAX);
    left.iter().filter(|n| history[**n].call <= first_end).any(|n| {
        let rest: Vec<usize> = left.iter().copied().filter(|other| other != n).collect();
        Object.step(&state, &history[*n].op).is_some_and(|after| brute_force(after, history, &rest))
    })
}

/// What the object answers when it is alone.
fn answer(current: Option<(u64, u64)>, action: Action, revision: u64) -> Outcome {
    match (action, current) {
        (Action::Create { .. }, Some(_)) => Outcome::AlreadyExists,
        (Action::Create { .. }, None) => done(revision),
        (_, None) => Outcome::NotFound,
        (Action::Get, Some((value, at))) => found(value, at),
        (Action::Update { expected: Some(expected), .. }, Some((_, at))) if expected != at => Outcome::Conflict,
        (Action::Update { .. } | Action::Delete, Some(_)) => done(revision),
    }
}

#[derive(Debug, Clone)]
struct Plan {
    action: u8,
    before: u64,
    after: u64,
    is_unanswered: bool,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let plan = (0..6_u8, 0..25_u64, 0..25_u64, prop::bool::weighted(0.2))
        .prop_map(|(action, before, after, is_unanswered)| Plan { action, before, after, is_unanswered });
    prop::collection::vec(plan, 1..8)
}

/// Carries the plans out in order, each somewhere within its call and its end.
fn carry_out(plans: &[Plan]) -> Vec<Operation<Op>> {
    let mut current: Option<(u64, u64)> = None;
    let mut history = Vec::new();
    for (number, plan) in (1..).zip(plans) {
        let revision = 100 + number;
        let action = match plan.action {
            0 => create(number),
            1 => update(number, current.map_or(1, |(_, at)| at)),
            2 => update(number, revision.saturating_sub(2)),
            3 => overwrite(number),
            4 => Action::Delete,
            _ => Action::Get,
        };
        let outcome = answer(current, action, revision);
        if let Outcome::Done { .. } = outcome {
            current = action.value().map(|value| (value, revision));
        }
        let moment = 50 + number * 10;
        let (call, end) = (moment - plan.before, moment + plan.after);
        let is_write = action != Action::Get;
        history.push(if plan.is_unanswered && is_write {
            unanswered(call, action)
        } else {
            operation(call, end, action, outcome)
        });
    }
    history
}

proptest! {
    #[test]
    fn what_did_happen_in_some_order_is_accepted(plans in plans()) {
        let history = carry_out(&plans);
        prop_assert!(is_linearizable(&history), "{history:#?}");
    }

    #[test]
    fn it_agrees_with_trying_every_order(plans in plans(), bent in 0..8_usize, how in 0..5_u8) {
        let mut history = carry_out(&plans);
        let bent = bent % history.len();
        // An answer that may well be a lie.
        let earlier = history[how as usize % history.len()].op.action.value().unwrap_or(1);
        if history[bent].end.is_some() {
            history[bent].op.outcome = match how {
                0 => Outcome::NotFound,
                1 => Outcome::AlreadyExists,
                2 => Outcome::Conflict,
                3 => found(earlier, 100 + earlier),
                _ => done(100 + earlier),
            };
        }
        let all: Vec<usize> = (0..history.len()).collect();
        prop_assert_eq!(is_linearizable(&history), brute_force(Object.start(), &history, &all), "{:#?}", history);
    }
}
