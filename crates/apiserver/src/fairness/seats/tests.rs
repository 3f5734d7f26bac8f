use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::super::level::Waiting as Places;
use super::*;

type Turn = Pin<Box<dyn Future<Output = Result<Seat, Refused>>>>;

fn share(nominal: usize, lendable: usize, borrowable: usize) -> Share {
    Share { nominal, lendable, borrowable, waiting: Places { in_a_flow: 10, in_all: 20 } }
}

fn room(levels: &[(&str, Share)]) -> Arc<Seats> {
    let seats = Arc::new(Seats::new(Flows::default()));
    seats.arrange(levels.iter().map(|(name, share)| ((*name).into(), *share)).collect());
    seats
}

fn ask(seats: &Arc<Seats>, level: &'static str, flow: &'static str, width: usize) -> Turn {
    let seats = Arc::clone(seats);
    Box::pin(async move { seats.take(level, "schema", flow, width).await })
}

fn look(turn: &mut Turn) -> Poll<Result<Seat, Refused>> {
    turn.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn seated(turn: &mut Turn) -> Seat {
    match look(turn) {
        Poll::Ready(Ok(seat)) => seat,
        other => panic!("{other:?}"),
    }
}

fn waits(turn: &mut Turn) -> bool {
    look(turn).is_pending()
}

#[test]
fn seats_are_given_until_there_are_none_and_again_when_they_are_free() {
    let seats = room(&[("one", share(2, 0, 0))]);
    let first = seated(&mut ask(&seats, "one", "a", 1));
    let _second = seated(&mut ask(&seats, "one", "a", 1));
    let mut third = ask(&seats, "one", "a", 1);
    assert!(waits(&mut third));
    drop(first);
    let _third = seated(&mut third);
    assert!(waits(&mut ask(&seats, "one", "a", 1)));
    let _free = seated(&mut ask(&seats, "not held back", "a", 1));
}

#[test]
fn flows_take_turns_however_many_each_sends() {
    let seats = room(&[("one", share(1, 0, 0))]);
    let mut running = seated(&mut ask(&seats, "one", "noisy", 1));
    let mut noisy: Vec<Turn> = (0..8).map(|_| ask(&seats, "one", "noisy", 1)).collect();
    assert!(noisy.iter_mut().all(waits));
    let mut quiet: Vec<Turn> = (0..2).map(|_| ask(&seats, "one", "quiet", 1)).collect();
    assert!(quiet.iter_mut().all(waits));
    let mut order = String::new();
    for _ in 0..6 {
        // As if each had taken a while, and the same while.
        running.held.as_mut().unwrap().since -= Duration::from_millis(100);
        drop(running);
        let next = noisy.iter_mut().map(|turn| ('n', turn)).chain(quiet.iter_mut().map(|turn| ('q', turn)));
        let mut found = None;
        for (who, turn) in next {
            if let Poll::Ready(seat) = look(turn) {
                found = Some((who, seat.unwrap()));
                // A future that has answered is not asked again.
                *turn = Box::pin(std::future::pending());
                break;
            }
        }
        let (who, seat) = found.unwrap();
        order.push(who);
        running = seat;
    }
    assert_eq!(order.matches('q').count(), 2, "{order}");
    assert!(order.find('q').unwrap() <= 1 && order.rfind('q').unwrap() <= 4, "{order}");
}

#[test]
fn what_a_level_lends_others_have_until_it_needs_it() {
    let seats = room(&[("lender", share(4, 3, 0)), ("borrower", share(1, 0, 10))]);
    let mut borrowed: Vec<Seat> = (0..4).map(|_| seated(&mut ask(&seats, "borrower", "b", 1))).collect();
    let mut fifth = ask(&seats, "borrower", "b", 1);
    assert!(waits(&mut fifth), "what the lender keeps is not lent");
    let _own = seated(&mut ask(&seats, "lender", "l", 1));
    let mut more = ask(&seats, "lender", "l", 1);
    assert!(waits(&mut more));
    borrowed.pop();
    let _more = seated(&mut more);
    assert!(waits(&mut fifth), "the lender comes first");
    borrowed.pop();
    let _fifth = seated(&mut fifth);
}

#[test]
fn who_may_not_borrow_does_not() {
    let seats = room(&[("lender", share(4, 4, 0)), ("modest", share(1, 0, 1))]);
    let _own = [seated(&mut ask(&seats, "modest", "m", 1)), seated(&mut ask(&seats, "modest", "m", 1))];
    assert!(waits(&mut ask(&seats, "modest", "m", 1)));
}

#[test]
fn queues_end_and_the_longest_gives_way() {
    let places = Places { in_a_flow: 3, in_all: 4 };
    let seats = room(&[("one", Share { waiting: places, ..share(1, 0, 0) })]);
    let _running = seated(&mut ask(&seats, "one", "noisy", 1));
    let mut noisy: Vec<Turn> = (0..3).map(|_| ask(&seats, "one", "noisy", 1)).collect();
    assert!(noisy.iter_mut().all(waits));
    assert!(matches!(look(&mut ask(&seats, "one", "noisy", 1)), Poll::Ready(Err(Refused::QueueFull))));
    let mut quiet: Vec<Turn> = (0..2).map(|_| ask(&seats, "one", "quiet", 1)).collect();
    assert!(quiet.iter_mut().all(waits));
    assert!(matches!(look(&mut noisy[2]), Poll::Ready(Err(Refused::QueueFull))), "for the quiet one's second");
    let places = Places::default();
    let seats = room(&[("none", Share { waiting: places, ..share(1, 0, 0) })]);
    let _running = seated(&mut ask(&seats, "none", "a", 1));
    assert!(matches!(look(&mut ask(&seats, "none", "b", 1)), Poll::Ready(Err(Refused::ConcurrencyLimit))));
}

#[test]
fn who_goes_away_leaves_no_place_behind() {
    let seats = room(&[("one", share(1, 0, 0))]);
    let running = seated(&mut ask(&seats, "one", "a", 1));
    let (mut gone, mut told) = (ask(&seats, "one", "b", 1), ask(&seats, "one", "c", 1));
    assert!(waits(&mut gone) && waits(&mut told));
    drop(gone);
    drop(running);
    // Its turn has come, but it goes before it hears of it.
    drop(told);
    let _next = seated(&mut ask(&seats, "one", "d", 1));
    let room = seats.room.lock();
    assert_eq!((room.taken, room.levels["one"].waiting, room.levels["one"].flows.len()), (1, 0, 1));
}

#[test]
fn wide_requests_take_several_seats_but_never_more_than_there_are_for_them() {
    let seats = room(&[("one", share(8, 0, 0))]);
    let wide = seated(&mut ask(&seats, "one", "a", 5));
    let mut another = ask(&seats, "one", "b", 10);
    assert!(waits(&mut another));
    // A quarter is for narrow ones, who pass those for whom there is no room.
    let _narrow = [seated(&mut ask(&seats, "one", "c", 1)), seated(&mut ask(&seats, "one", "c", 1))];
    let mut third = ask(&seats, "one", "c", 1);
    assert!(waits(&mut third), "the others are not for them, as long as one waits");
    drop(wide);
    let six = seated(&mut another);
    assert!(waits(&mut third));
    drop(six);
    let _third = seated(&mut third);
}

#[test]
fn seats_for_narrow_requests_are_not_lent() {
    let seats = room(&[("lender", share(4, 4, 0)), ("borrower", share(2, 0, 10))]);
    let _wide = seated(&mut ask(&seats, "borrower", "a", 1));
    let _more: Vec<Seat> = (0..4).map(|_| seated(&mut ask(&seats, "borrower", "a", 1))).collect();
    assert!(waits(&mut ask(&seats, "borrower", "a", 1)));
    let _own = seated(&mut ask(&seats, "lender", "b", 1));
}

#[test]
fn a_level_that_is_gone_is_forgotten_when_its_last_request_ends() {
    let seats = room(&[("one", share(1, 0, 0)), ("two", share(1, 0, 0))]);
    let running = seated(&mut ask(&seats, "one", "a", 1));
    let mut waiting = ask(&seats, "one", "a", 1);
    assert!(waits(&mut waiting));
    seats.arrange([("two".into(), share(2, 0, 0))].into());
    drop(running);
    drop(seated(&mut waiting));
    let room = seats.room.lock();
    assert_eq!((room.taken, room.levels.len(), room.total), (0, 1, 2));
}

/// Gives a seat back as if it had been taken that long ago.
fn finish(mut seat: Seat, took: Duration) {
    seat.held.as_mut().unwrap().since -= took;
}

#[test]
fn nobody_saves_up_what_they_leave_to_others() {
    const SHORT: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(100);
    let seats = room(&[("one", share(4, 0, 0))]);
    // For long, one flow does little and another one much. Neither is ever in the other's way, and the first one never idle.
    let mut modest = seated(&mut ask(&seats, "one", "modest", 1));
    for _ in 0..20 {
        let busy = [(); 2].map(|()| seated(&mut ask(&seats, "one", "busy", 1)));
        let next = seated(&mut ask(&seats, "one", "modest", 1));
        finish(std::mem::replace(&mut modest, next), SHORT);
        for seat in busy {
            finish(seat, LONG);
        }
    }
    // Then both want all there is.
    let mut held: VecDeque<Seat> = (0..3).map(|_| seated(&mut ask(&seats, "one", "busy", 1))).collect();
    let mut turns: Vec<(&str, Turn)> = ["modest", "busy"]
        .into_iter()
        .flat_map(|flow| (0..8).map(move |_| flow))
        .map(|flow| (flow, ask(&seats, "one", flow, 1)))
        .collect();
    assert!(turns.iter_mut().all(|(_, turn)| waits(turn)));
    let mut order = Vec::new();
    for _ in 0..8 {
        finish(held.pop_front().unwrap(), LONG);
        let (place, seat) = turns
            .iter_mut()
            .enumerate()
            .find_map(|(place, (_, turn))| match look(turn) {
                Poll::Ready(seat) => Some((place, seat.unwrap())),
                Poll::Pending => None,
            })
            .unwrap();
        held.push_back(seat);
        order.push(turns.remove(place).0);
    }
    let busy = order.iter().filter(|flow| **flow == "busy").count();
    assert!((2..=6).contains(&busy), "{order:?}");
}

#[test]
fn who_goes_away_is_in_nobodys_way() {
    let seats = room(&[("one", share(4, 0, 0))]);
    let _running = seated(&mut ask(&seats, "one", "a", 2));
    let mut wide = ask(&seats, "one", "b", 3);
    let mut narrow = ask(&seats, "one", "c", 1);
    let _passed = seated(&mut ask(&seats, "one", "c", 1));
    assert!(waits(&mut wide) && waits(&mut narrow));
    drop(wide);
    let _narrow = seated(&mut narrow);
}
