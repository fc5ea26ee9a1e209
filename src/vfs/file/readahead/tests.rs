use super::*;

const BLOCK: u64 = 100;
const LIMITS: ReadaheadLimits = ReadaheadLimits { block: BLOCK, max: 800, usual: 0 };

fn read(start: u64, len: u64, waited: bool) -> ReadEvent {
    ReadEvent { range: start..start + len, waited, missing: false }
}

/// Returns what each read of 50 bytes fetches ahead, if none finds its bytes in memory.
fn ahead(streams: &mut Readahead, starts: &[u64]) -> Vec<Vec<Range<u64>>> {
    starts.iter().map(|start| streams.read(&read(*start, 50, true), LIMITS).ranges).collect()
}

fn only(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

fn window(streams: &Readahead, slot: usize) -> u64 {
    streams.streams[slot].forward.window()
}

#[test]
fn a_stream_from_the_start_begins_with_a_block_and_doubles_while_it_waits() {
    let mut streams = Readahead::default();
    assert_eq!(ahead(&mut streams, &[0, 50]), [only(50..200), only(200..300)]);
    let mut last = 300;
    for start in (100..3000).step_by(50) {
        for range in streams.read(&read(start, 50, true), LIMITS).ranges {
            assert!(range.end - (start + 50).next_multiple_of(BLOCK) <= LIMITS.max);
            assert_eq!(range.start, last, "nothing is fetched twice, nothing left out");
            last = range.end;
        }
    }
    assert_eq!(last, 3000 + LIMITS.max);
}

#[test]
fn the_window_stays_while_the_reader_does_not_wait_for_long() {
    let mut streams = Readahead::default();
    ahead(&mut streams, &[0, 50, 100, 150]);
    let before = window(&streams, 0);
    streams.read(&read(200, 50, false), LIMITS);
    assert_eq!(window(&streams, 0), before);
}

#[test]
fn the_window_shrinks_to_two_blocks_while_the_reader_never_waits() {
    let mut streams = Readahead::default();
    ahead(&mut streams, &(0..60).map(|i| i * 50).collect::<Vec<_>>());
    assert_eq!(window(&streams, 0), LIMITS.max);
    for start in (3000..30_000).step_by(50) {
        streams.read(&read(start, 50, false), LIMITS);
    }
    assert_eq!(window(&streams, 0), 2 * BLOCK);
}

#[test]
fn a_new_stream_begins_with_half_of_what_others_needed() {
    let mut streams = Readahead::default();
    let limits = ReadaheadLimits { usual: 800, ..LIMITS };
    for start in [0, 50, 100] {
        streams.read(&read(start, 50, true), limits);
    }
    assert_eq!(window(&streams, 0), 400);
}

#[test]
fn a_first_read_elsewhere_fetches_nothing_and_a_second_behind_it_does() {
    let mut streams = Readahead::default();
    assert_eq!(ahead(&mut streams, &[5000, 5050]), [vec![], only(5100..5200)]);
}

#[test]
fn a_short_run_of_reads_in_the_middle_fetches_nothing() {
    let mut streams = Readahead::default();
    for start in (5000..5050).step_by(10) {
        assert_eq!(streams.read(&read(start, 10, true), LIMITS).ranges, []);
    }
}

#[test]
fn random_reads_fetch_nothing() {
    let mut streams = Readahead::default();
    let starts: Vec<u64> = (1..50).map(|i| i * 7919 % 50 * 10_000).filter(|s| *s > 0).collect();
    assert!(ahead(&mut streams, &starts).iter().all(Vec::is_empty));
}

#[test]
fn sixteen_streams_of_one_handle_do_not_disturb_each_other() {
    let mut streams = Readahead::default();
    for at in (0..4000).step_by(50) {
        let starts: Vec<u64> = (0..16).map(|stream| stream * 50_000 + at).collect();
        ahead(&mut streams, &starts);
    }
    assert_eq!(streams.streams.len(), 16);
    assert!((0..16).all(|slot| window(&streams, slot) == LIMITS.max));
}

#[test]
fn another_stream_takes_the_place_of_the_one_not_read_for_longest() {
    let mut streams = Readahead::default();
    for stream in (1..=17).filter(|stream| *stream != 3) {
        ahead(&mut streams, &[stream * 50_000]);
    }
    ahead(&mut streams, &[50_050, 900_000]);
    let begins: Vec<u64> = streams.streams.iter().map(|stream| stream.low).collect();
    assert!(begins.contains(&50_000) && !begins.contains(&100_000), "{begins:?}");
}

#[test]
fn reads_out_of_order_stay_in_their_stream() {
    let mut streams = Readahead::default();
    ahead(&mut streams, &[0, 50, 150, 100, 250, 200, 300, 350]);
    assert_eq!(streams.streams.len(), 1);
}

#[test]
fn what_was_refused_is_asked_for_again() {
    let mut streams = Readahead::default();
    ahead(&mut streams, &[0, 50, 100]);
    let first = streams.read(&read(150, 50, true), LIMITS);
    let range = first.ranges[0].clone();
    streams.refused(first.stream, &(range.start + 40..range.end));
    let second = streams.read(&read(200, 50, true), LIMITS);
    assert_eq!(second.ranges[0].start, range.start + 40);
}

#[test]
fn what_was_dropped_from_memory_is_asked_for_again() {
    let mut streams = Readahead::default();
    ahead(&mut streams, &[0, 50, 100, 150]);
    let missing = ReadEvent { missing: true, ..read(200, 50, true) };
    assert_eq!(streams.read(&missing, LIMITS).ranges[0].start, 250);
}

#[test]
fn a_smaller_share_limits_what_is_fetched_and_keeps_the_window() {
    let mut streams = Readahead::default();
    ahead(&mut streams, &(0..60).map(|i| i * 50).collect::<Vec<_>>());
    let short = ReadaheadLimits { max: BLOCK, ..LIMITS };
    for start in (3000..3700).step_by(50) {
        assert_eq!(streams.read(&read(start, 50, true), short).ranges, [], "at {start}");
    }
    let after = streams.read(&read(3700, 50, true), LIMITS).ranges;
    assert_eq!(after, only(3800..4600), "up to the window, once there is room");
}

#[test]
fn without_a_maximum_nothing_is_fetched() {
    let mut streams = Readahead::default();
    let none = ReadaheadLimits { max: 0, ..LIMITS };
    assert!((0..20).all(|i| streams.read(&read(i * 50, 50, true), none).ranges.is_empty()));
}

#[test]
fn a_backward_walk_is_fetched_ahead_downward() {
    let mut streams = Readahead::default();
    let starts: Vec<u64> = (0..40).map(|i| 5000 - i * 50).collect();
    let fetched = ahead(&mut streams, &starts);
    assert!(fetched[..3].iter().all(Vec::is_empty), "{fetched:?}");
    let all: Vec<Range<u64>> = fetched.into_iter().flatten().collect();
    assert!(all.windows(2).all(|two| two[1].end == two[0].start), "downward: {all:?}");
    let lowest = all.last().unwrap().start;
    assert!(lowest + 200 < *starts.last().unwrap(), "the window grows: {lowest}");
}

#[test]
fn reads_at_a_constant_distance_fetch_the_next_ones_only() {
    let mut streams = Readahead::default();
    let fetched = ahead(&mut streams, &[1000, 2000, 3000, 4000, 5000, 6000]);
    let next = |starts: &[u64]| starts.iter().map(|at| *at..at + 50).collect::<Vec<_>>();
    assert!(fetched[..3].iter().all(Vec::is_empty), "{fetched:?}");
    assert_eq!(fetched[4], next(&[6000, 7000]));
    assert_eq!(fetched[5], next(&[7000, 8000, 9000]));
}
