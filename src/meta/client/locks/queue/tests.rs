use futures::FutureExt;

use super::*;
use crate::meta::LockOwner;
use crate::meta::record::LockKind::{self, Read, Write};
use crate::meta::record::PlockRange;

const OWN: Sid = Sid(1);
const OTHER: Sid = Sid(2);
const AT: At = (Ino(9), Family::Flock);

fn claim(sid: Sid, owner: u64, kind: LockKind) -> Claim {
    Claim::whole(sid, LockOwner(owner), kind)
}

fn ours(owner: u64, kind: LockKind) -> Claim {
    claim(OWN, owner, kind)
}

fn range(owner: u64, kind: LockKind, start: u64, end: u64) -> Claim {
    let range = PlockRange { kind, pid: 1, start, end };
    Claim { sid: OWN, owner: LockOwner(owner), range }
}

fn blocked(held: &[Claim]) -> Tried {
    Tried { granted: false, held: held.to_vec(), before: Vec::new() }
}

fn granted(held: &[Claim]) -> Tried {
    Tried { granted: true, ..blocked(held) }
}

/// Whether the request has a reason to try right now.
fn may_try(place: &Place<'_>) -> bool {
    place.turn().now_or_never().is_some()
}

/// Lets each request try once and fail.
fn fail_all(queues: &LockQueues, places: &[&Place<'_>], held: &[Claim]) {
    for place in places {
        assert!(may_try(place));
        queues.settle(AT, Some(place.ticket()), &blocked(held), OWN);
    }
    assert!(places.iter().all(|place| !may_try(place)));
}

#[tokio::test]
async fn a_new_request_tries_at_once() {
    let queues = LockQueues::default();
    assert!(may_try(&queues.join(AT, ours(1, Write))));
}

#[tokio::test]
async fn a_release_gives_one_writer_its_turn_in_order_of_arrival() {
    let queues = LockQueues::default();
    let holder = [ours(1, Write)];
    let second = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&second], &holder);
    let third = queues.join(AT, ours(3, Write));
    fail_all(&queues, &[&third], &holder);

    queues.settle(AT, None, &granted(&[]), OWN);
    assert!(may_try(&second));
    assert!(!may_try(&third));

    queues.settle(AT, Some(second.ticket()), &granted(&[ours(2, Write)]), OWN);
    assert!(!may_try(&third));
    queues.settle(AT, None, &granted(&[]), OWN);
    assert!(may_try(&third));
}

#[tokio::test]
async fn a_release_gives_all_readers_their_turn() {
    let queues = LockQueues::default();
    let places: Vec<Place<'_>> = (2..5).map(|n| queues.join(AT, ours(n, Read))).collect();
    fail_all(&queues, &places.iter().collect::<Vec<_>>(), &[ours(1, Write)]);
    queues.settle(AT, None, &granted(&[]), OWN);
    assert!(places.iter().all(may_try));
}

#[tokio::test]
async fn a_reader_is_not_held_up_by_a_waiting_writer() {
    let queues = LockQueues::default();
    let writer = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&writer], &[ours(1, Write)]);
    let reader = queues.join(AT, ours(3, Read));
    fail_all(&queues, &[&reader], &[ours(1, Write)]);

    // The holder downgrades.
    queues.settle(AT, None, &granted(&[ours(1, Read)]), OWN);
    assert!(!may_try(&writer));
    assert!(may_try(&reader));
}

#[tokio::test]
async fn a_holder_that_wants_more_does_not_wait_for_itself() {
    let queues = LockQueues::default();
    let upgrade = queues.join(AT, ours(1, Write));
    fail_all(&queues, &[&upgrade], &[ours(1, Read), ours(2, Read)]);
    queues.settle(AT, None, &granted(&[ours(1, Read)]), OWN);
    assert!(may_try(&upgrade));
}

#[tokio::test]
async fn ranges_apart_do_not_wait_for_each_other() {
    let queues = LockQueues::default();
    let left = queues.join(AT, range(2, Write, 0, 9));
    let right = queues.join(AT, range(3, Write, 10, 19));
    fail_all(&queues, &[&left, &right], &[range(1, Write, 0, 99)]);

    queues.settle(AT, None, &granted(&[range(1, Write, 0, 9)]), OWN);
    assert!(!may_try(&left));
    assert!(may_try(&right));
    queues.settle(AT, None, &granted(&[]), OWN);
    assert!(may_try(&left));
}

#[tokio::test]
async fn a_newcomer_does_not_step_in_front_of_a_turn() {
    let queues = LockQueues::default();
    let first = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&first], &[ours(1, Write)]);
    queues.settle(AT, None, &granted(&[]), OWN);

    let newcomer = queues.join(AT, ours(1, Write));
    assert!(!may_try(&newcomer));
    assert!(may_try(&first));
}

#[tokio::test]
async fn a_turn_not_taken_goes_to_the_next() {
    let queues = LockQueues::default();
    let first = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&first], &[ours(1, Write)]);
    let second = queues.join(AT, ours(3, Write));
    fail_all(&queues, &[&second], &[ours(1, Write)]);

    queues.settle(AT, None, &granted(&[]), OWN);
    drop(first);
    assert!(may_try(&second));
}

#[tokio::test]
async fn a_failed_turn_goes_to_whoever_fits_what_is_held() {
    let queues = LockQueues::default();
    let writer = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&writer], &[ours(1, Write)]);
    let reader = queues.join(AT, ours(3, Read));
    fail_all(&queues, &[&reader], &[ours(1, Write)]);

    queues.settle(AT, None, &granted(&[]), OWN);
    assert!(may_try(&writer));
    assert!(!may_try(&reader));
    // Another client was faster.
    let held = [claim(OTHER, 1, Read)];
    queues.settle(AT, Some(writer.ticket()), &blocked(&held), OWN);
    assert!(may_try(&reader));
    assert!(!may_try(&writer));
}

#[tokio::test]
async fn a_release_during_a_try_is_not_missed() {
    let queues = LockQueues::default();
    let place = queues.join(AT, ours(2, Write));
    assert!(may_try(&place));
    // It looks, then the holder lets go, then its failure becomes known.
    queues.settle(AT, None, &granted(&[]), OWN);
    queues.settle(AT, Some(place.ticket()), &blocked(&[ours(1, Write)]), OWN);
    assert!(may_try(&place));
    queues.settle(AT, Some(place.ticket()), &blocked(&[ours(1, Write)]), OWN);
    assert!(!may_try(&place));
}

#[tokio::test]
async fn a_release_wakes_a_request_that_sleeps() {
    let queues = LockQueues::default();
    let place = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&place], &[ours(1, Write)]);
    // Nobody else lets time pass: without the release the pause would last for ever.
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    tokio::join!(place.turn(), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        queues.settle(AT, None, &granted(&[]), OWN);
    });
    assert!(started.elapsed() < OWN_PAUSE / 4);
}

#[tokio::test]
async fn the_next_in_line_looks_once_the_first_has_left() {
    let queues = LockQueues::default();
    let held = [claim(OTHER, 1, Write)];
    let first = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&first], &held);
    let second = queues.join(AT, ours(3, Write));
    fail_all(&queues, &[&second], &held);

    let looks = tokio::time::timeout(LONGEST_PAUSE * 3, second.turn());
    assert!(looks.await.is_err(), "only the first looks");
    let (looked, ()) =
        tokio::join!(tokio::time::timeout(LONGEST_PAUSE * 3, second.turn()), async {
            drop(first);
        });
    assert!(looked.is_ok());
}

#[tokio::test]
async fn looks_become_rarer() {
    let queues = LockQueues::default();
    let held = [claim(OTHER, 1, Write)];
    let place = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&place], &held);

    let mut looks = 0;
    let wait = async {
        loop {
            place.turn().await;
            queues.settle(AT, Some(place.ticket()), &blocked(&held), OWN);
            looks += 1;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(800), wait).await;
    assert!((3..=30).contains(&looks), "{looks} looks");
}

#[tokio::test]
async fn a_lock_of_another_client_is_looked_for_sooner_than_our_own() {
    let queues = LockQueues::default();
    let place = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&place], &[ours(1, Write)]);
    assert!(tokio::time::timeout(LONGEST_PAUSE * 2, place.turn()).await.is_err());

    let (looked, ()) = tokio::join!(tokio::time::timeout(LONGEST_PAUSE, place.turn()), async {
        queues.settle(AT, None, &granted(&[claim(OTHER, 1, Read)]), OWN);
    });
    assert!(looked.is_ok());
}

#[tokio::test]
async fn an_empty_queue_is_forgotten() {
    let queues = LockQueues::default();
    let place = queues.join(AT, ours(2, Write));
    let other = queues.join((Ino(9), Family::Plock), ours(2, Write));
    assert_eq!(queues.waiting(), 2);
    drop(other);
    queues.settle(AT, Some(place.ticket()), &granted(&[ours(2, Write)]), OWN);
    assert!(queues.lock().is_empty());
    drop(place);
    assert_eq!(queues.waiting(), 0);
}
