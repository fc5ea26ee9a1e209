use futures::FutureExt;

use super::*;
use crate::meta::LockOwner;
use crate::meta::record::LockKind::{self, Read, Write};
use crate::meta::record::PlockRange;

const OWN: Sid = Sid(1);
const OTHER: Sid = Sid(2);
const AT: QueueKey = (Ino(9), LockFamily::Flock);

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

fn blocked(held: &[Claim]) -> LockAttempt {
    LockAttempt { granted: false, held: held.to_vec(), before: Vec::new() }
}

fn granted(held: &[Claim]) -> LockAttempt {
    LockAttempt { granted: true, ..blocked(held) }
}

/// Whether the request may try now.
fn may_try(place: &QueuedRequest<'_>) -> bool {
    place.until_may_try().now_or_never().is_some()
}

/// Lets each request try once and fail.
fn fail_all(queues: &LockQueues, places: &[&QueuedRequest<'_>], held: &[Claim]) {
    for place in places {
        assert!(may_try(place));
        queues.record_attempt(AT, Some(place.ticket()), &blocked(held), OWN);
    }
    assert!(places.iter().all(|place| !may_try(place)));
}

#[tokio::test]
async fn a_new_request_tries_at_once() {
    let queues = LockQueues::default();
    assert!(may_try(&queues.join(AT, ours(1, Write))));
}

#[tokio::test]
async fn a_release_wakes_one_writer_in_order_of_arrival() {
    let queues = LockQueues::default();
    let holder = [ours(1, Write)];
    let second = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&second], &holder);
    let third = queues.join(AT, ours(3, Write));
    fail_all(&queues, &[&third], &holder);

    queues.record_attempt(AT, None, &granted(&[]), OWN);
    assert!(may_try(&second));
    assert!(!may_try(&third));

    queues.record_attempt(AT, Some(second.ticket()), &granted(&[ours(2, Write)]), OWN);
    assert!(!may_try(&third));
    queues.record_attempt(AT, None, &granted(&[]), OWN);
    assert!(may_try(&third));
}

#[tokio::test]
async fn a_release_wakes_all_readers() {
    let queues = LockQueues::default();
    let places: Vec<QueuedRequest<'_>> = (2..5).map(|n| queues.join(AT, ours(n, Read))).collect();
    fail_all(&queues, &places.iter().collect::<Vec<_>>(), &[ours(1, Write)]);
    queues.record_attempt(AT, None, &granted(&[]), OWN);
    assert!(places.iter().all(may_try));
}

#[tokio::test]
async fn a_reader_does_not_wait_for_a_waiting_writer() {
    let queues = LockQueues::default();
    let writer = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&writer], &[ours(1, Write)]);
    let reader = queues.join(AT, ours(3, Read));
    fail_all(&queues, &[&reader], &[ours(1, Write)]);

    // The holder downgrades.
    queues.record_attempt(AT, None, &granted(&[ours(1, Read)]), OWN);
    assert!(!may_try(&writer));
    assert!(may_try(&reader));
}

#[tokio::test]
async fn a_holder_does_not_wait_for_itself() {
    let queues = LockQueues::default();
    let upgrade = queues.join(AT, ours(1, Write));
    fail_all(&queues, &[&upgrade], &[ours(1, Read), ours(2, Read)]);
    queues.record_attempt(AT, None, &granted(&[ours(1, Read)]), OWN);
    assert!(may_try(&upgrade));
}

#[tokio::test]
async fn disjoint_ranges_do_not_wait_for_each_other() {
    let queues = LockQueues::default();
    let left = queues.join(AT, range(2, Write, 0, 9));
    let right = queues.join(AT, range(3, Write, 10, 19));
    fail_all(&queues, &[&left, &right], &[range(1, Write, 0, 99)]);

    queues.record_attempt(AT, None, &granted(&[range(1, Write, 0, 9)]), OWN);
    assert!(!may_try(&left));
    assert!(may_try(&right));
    queues.record_attempt(AT, None, &granted(&[]), OWN);
    assert!(may_try(&left));
}

#[tokio::test]
async fn a_new_request_does_not_overtake_one_that_may_try() {
    let queues = LockQueues::default();
    let first = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&first], &[ours(1, Write)]);
    queues.record_attempt(AT, None, &granted(&[]), OWN);

    let newcomer = queues.join(AT, ours(1, Write));
    assert!(!may_try(&newcomer));
    assert!(may_try(&first));
}

#[tokio::test]
async fn unused_permission_to_try_passes_to_the_next() {
    let queues = LockQueues::default();
    let first = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&first], &[ours(1, Write)]);
    let second = queues.join(AT, ours(3, Write));
    fail_all(&queues, &[&second], &[ours(1, Write)]);

    queues.record_attempt(AT, None, &granted(&[]), OWN);
    drop(first);
    assert!(may_try(&second));
}

#[tokio::test]
async fn a_failed_attempt_wakes_requests_compatible_with_held_locks() {
    let queues = LockQueues::default();
    let writer = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&writer], &[ours(1, Write)]);
    let reader = queues.join(AT, ours(3, Read));
    fail_all(&queues, &[&reader], &[ours(1, Write)]);

    queues.record_attempt(AT, None, &granted(&[]), OWN);
    assert!(may_try(&writer));
    assert!(!may_try(&reader));
    // Another client was faster.
    let held = [claim(OTHER, 1, Read)];
    queues.record_attempt(AT, Some(writer.ticket()), &blocked(&held), OWN);
    assert!(may_try(&reader));
    assert!(!may_try(&writer));
}

#[tokio::test]
async fn a_release_during_an_attempt_is_not_missed() {
    let queues = LockQueues::default();
    let place = queues.join(AT, ours(2, Write));
    assert!(may_try(&place));
    // It polls, then the holder releases, then its failure becomes known.
    queues.record_attempt(AT, None, &granted(&[]), OWN);
    queues.record_attempt(AT, Some(place.ticket()), &blocked(&[ours(1, Write)]), OWN);
    assert!(may_try(&place));
    queues.record_attempt(AT, Some(place.ticket()), &blocked(&[ours(1, Write)]), OWN);
    assert!(!may_try(&place));
}

#[tokio::test]
async fn a_release_wakes_a_sleeping_request() {
    let queues = LockQueues::default();
    let place = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&place], &[ours(1, Write)]);
    // Time stands still: without the release the pause would never end.
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    tokio::join!(place.until_may_try(), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        queues.record_attempt(AT, None, &granted(&[]), OWN);
    });
    assert!(started.elapsed() < OWN_PAUSE / 4);
}

#[tokio::test]
async fn the_next_request_polls_once_the_first_has_left() {
    let queues = LockQueues::default();
    let held = [claim(OTHER, 1, Write)];
    let first = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&first], &held);
    let second = queues.join(AT, ours(3, Write));
    fail_all(&queues, &[&second], &held);

    let looks = tokio::time::timeout(LONGEST_PAUSE * 3, second.until_may_try());
    assert!(looks.await.is_err(), "only the first looks");
    let (looked, ()) =
        tokio::join!(tokio::time::timeout(LONGEST_PAUSE * 3, second.until_may_try()), async {
            drop(first);
        });
    assert!(looked.is_ok());
}

#[tokio::test]
async fn polls_become_rarer() {
    let queues = LockQueues::default();
    let held = [claim(OTHER, 1, Write)];
    let place = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&place], &held);

    let mut looks = 0;
    let wait = async {
        loop {
            place.until_may_try().await;
            queues.record_attempt(AT, Some(place.ticket()), &blocked(&held), OWN);
            looks += 1;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(800), wait).await;
    assert!((3..=30).contains(&looks), "{looks} looks");
}

#[tokio::test]
async fn a_lock_of_another_client_is_polled_sooner_than_an_own_one() {
    let queues = LockQueues::default();
    let place = queues.join(AT, ours(2, Write));
    fail_all(&queues, &[&place], &[ours(1, Write)]);
    assert!(tokio::time::timeout(LONGEST_PAUSE * 2, place.until_may_try()).await.is_err());

    let (looked, ()) =
        tokio::join!(tokio::time::timeout(LONGEST_PAUSE, place.until_may_try()), async {
            queues.record_attempt(AT, None, &granted(&[claim(OTHER, 1, Read)]), OWN);
        });
    assert!(looked.is_ok());
}

#[tokio::test]
async fn an_empty_queue_is_forgotten() {
    let queues = LockQueues::default();
    let place = queues.join(AT, ours(2, Write));
    let other = queues.join((Ino(9), LockFamily::Plock), ours(2, Write));
    assert_eq!(queues.waiting(), 2);
    drop(other);
    queues.record_attempt(AT, Some(place.ticket()), &granted(&[ours(2, Write)]), OWN);
    assert!(queues.lock().is_empty());
    drop(place);
    assert_eq!(queues.waiting(), 0);
}
