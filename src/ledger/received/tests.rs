use std::time::Duration;

use super::*;

const LARGEST: usize = 132 << 10;

/// A message of this length, as the kernel sends it: its length, an opcode, its number, and the
/// rest.
fn message(unique: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(unique % 251).unwrap(); length];
    bytes[..4].copy_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
    bytes[4..8].copy_from_slice(&16_u32.to_ne_bytes());
    bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

fn receive(requests: &Arc<ReceivedRequests>, bytes: &[u8]) -> ReceiveSpace {
    let mut space = requests.space().unwrap();
    space.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    space
}

fn memory_of(requests: &ReceivedRequests) -> OwnedFd {
    requests.as_fd().try_clone_to_owned().unwrap()
}

/// The messages that the next process finds.
fn adopted(requests: &ReceivedRequests) -> (Arc<ReceivedRequests>, Vec<Vec<u8>>) {
    let (next, found) = ReceivedRequests::adopt(memory_of(requests), LARGEST).unwrap();
    let messages = found.iter().map(|found| next.message(&found.slot)).collect();
    (next, messages)
}

#[test]
fn the_next_process_finds_what_was_received_and_not_freed() {
    let requests = ReceivedRequests::create(LARGEST).unwrap();
    let lengths = [40, 41, 100, 1024, 1025, 4176, 8192, 8193, LARGEST];
    for (number, length) in lengths.into_iter().enumerate() {
        let bytes = message(2 * number as u64, length);
        let space = receive(&requests, &bytes);
        let (slot, space) = requests.keep(space, length);
        assert_eq!(space.is_some(), length <= 8192, "{length}");
        assert_eq!(requests.message(&slot), bytes, "{length}");
        if let Some(space) = space {
            space.free();
        }
    }
    // Received, and nothing more.
    receive(&requests, &message(100, 50));
    // Has its reply.
    let (slot, space) = requests.keep(receive(&requests, &message(102, 60)), 60);
    requests.free(slot);
    space.unwrap().free();
    let expected: Vec<_> = lengths
        .into_iter()
        .enumerate()
        .map(|(number, length)| message(2 * number as u64, length))
        .chain([message(100, 50)])
        .collect();
    assert_eq!(adopted(&requests).1, expected);
    // Again, since the process that found them may die as well.
    assert_eq!(adopted(&requests).1, expected);
}

#[test]
fn a_message_is_found_exactly_once_after_every_prefix_of_stores() {
    for length in [40, 47, 48, 1024, 3000] {
        let bytes = message(6, length);
        let words: Vec<u64> = bytes.chunks(WORD).map(to_word).collect();
        let layout = Layout::new(LARGEST).unwrap();
        let from = layout.classes[Layout::LARGE].message(0);
        let class = usize::from(length > 1024);
        let to = layout.classes[class].message(0);
        // The stores of `keep` in their order, as a process that dies may leave them.
        let mut stores: Vec<(usize, u64)> =
            (1..words.len()).map(|index| (to + index, words[index])).collect();
        stores.extend([(to, words[0]), (from, 0)]);
        for made in 0..=stores.len() {
            let requests = ReceivedRequests::create(LARGEST).unwrap();
            receive(&requests, &bytes);
            for (word, value) in &stores[..made] {
                requests.word(*word).store(*value, Ordering::Relaxed);
            }
            let (next, found) = adopted(&requests);
            assert_eq!(found, [bytes.as_slice()], "{length}: {made}");
            // The slots that it does not take are free.
            assert_eq!(next.state.lock().classes.iter().map(|it| it.free.len()).sum::<usize>(), {
                let slots = layout.classes.iter().map(|class| class.slots as usize);
                slots.sum::<usize>() - 1
            });
        }
    }
}

#[test]
fn the_stores_of_keep_are_those_that_the_prefixes_are_made_of() {
    let requests = ReceivedRequests::create(LARGEST).unwrap();
    let bytes = message(6, 100);
    let space = receive(&requests, &bytes);
    let (_, space) = requests.keep(space, 100);
    let layout = Layout::new(LARGEST).unwrap();
    let word = |index: usize| requests.word(index).load(Ordering::Relaxed);
    assert_eq!(word(layout.classes[Layout::LARGE].message(0)), 0);
    assert_eq!(word(layout.classes[0].message(0)), to_word(&bytes[..8]));
    assert_eq!(space.unwrap().message(100)[8..], bytes[8..]);
}

#[test]
fn a_message_that_was_not_received_whole_is_not_found() {
    // What the kernel has not written is as it was: the length is 0.
    let requests = ReceivedRequests::create(LARGEST).unwrap();
    let mut space = receive(&requests, &message(2, 500));
    space.clear();
    assert!(adopted(&requests).1.is_empty());
    // Lengths that no message has.
    for length in [1, 39, u32::try_from(LARGEST).unwrap() + 8192, u32::MAX] {
        let mut space = requests.space().unwrap();
        space.bytes_mut()[..4].copy_from_slice(&length.to_ne_bytes());
        space.bytes_mut()[8] = 9;
        let (next, found) = adopted(&requests);
        assert!(found.is_empty(), "{length}");
        assert_eq!(
            next.memory.read_words(next.layout.classes[2].message(space.slot)).unwrap()[0],
            0
        );
    }
}

#[test]
fn the_space_is_bounded_and_the_last_one_comes_back() {
    let requests = ReceivedRequests::create(LARGEST).unwrap();
    let spaces: Vec<_> = std::iter::from_fn(|| requests.space()).collect();
    assert_eq!(spaces.len(), requests.layout.classes[Layout::LARGE].slots as usize);
    assert!(spaces.len() * LARGEST <= 64 << 20);
    for space in spaces {
        space.free();
    }
    assert!(requests.space().is_some());
}

#[test]
fn small_messages_without_a_slot_keep_the_space() {
    let requests = ReceivedRequests::create(LARGEST).unwrap();
    let mut spaces = 0;
    for number in 0..5121 {
        let space = receive(&requests, &message(number, 64));
        let (_, space) = requests.keep(space, 64);
        match space {
            Some(space) => space.free(),
            None => spaces += 1,
        }
    }
    assert_eq!(spaces, 1);
    assert_eq!(adopted(&requests).1.len(), 5121);
}

#[test]
fn memory_is_given_back_when_requests_have_their_replies() {
    let requests = ReceivedRequests::create(LARGEST).unwrap();
    let blocks = || rustix::fs::fstat(&requests).unwrap().st_blocks * 512;
    let receiver = requests.space().unwrap();
    let idle = blocks();
    let mut slots = Vec::new();
    for number in 0..3000 {
        let (slot, space) = requests.keep(receive(&requests, &message(number, 1000)), 1000);
        slots.push(slot);
        space.unwrap().free();
    }
    for number in 3000..3040 {
        slots.push(requests.keep(receive(&requests, &message(number, LARGEST)), LARGEST).0);
    }
    assert!(blocks() > 8 << 20);
    let last = slots.pop().unwrap();
    for slot in slots {
        requests.free(slot);
    }
    assert_eq!(requests.message(&last), message(3039, LARGEST));
    requests.free(last);
    assert!(blocks() <= idle + (768 << 10), "{}", blocks());
    assert!(idle < 256 << 10, "{idle}");
    // What is left works.
    receiver.free();
    receive(&requests, &message(2, 50));
    assert_eq!(adopted(&requests).1, [message(2, 50)]);
}

#[test]
fn finding_messages_takes_no_memory_for_empty_slots() {
    let requests = ReceivedRequests::create(LARGEST).unwrap();
    receive(&requests, &message(2, 50));
    let before = rustix::fs::fstat(&requests).unwrap().st_blocks;
    let (next, _) = adopted(&requests);
    assert_eq!(rustix::fs::fstat(&next).unwrap().st_blocks, before);
}

#[test]
fn a_process_that_has_left_stores_nothing() {
    let requests = ReceivedRequests::create(LARGEST).unwrap();
    let (slot, space) = requests.keep(receive(&requests, &message(2, 50)), 50);
    requests.leave();
    requests.free(slot);
    space.unwrap().free();
    assert!(requests.space().is_none());
    assert_eq!(adopted(&requests).1, [message(2, 50)]);
}

#[test]
fn memory_of_another_version_or_size_is_refused() {
    let requests = ReceivedRequests::create(LARGEST).unwrap();
    let refused = |largest| {
        ReceivedRequests::adopt(memory_of(&requests), largest).map(drop).unwrap_err().to_string()
    };
    assert!(refused(LARGEST - 8).contains("bytes"), "{}", refused(LARGEST - 8));
    refused(1 << 20);
    refused(0);
    requests.word(header::VERSION).store(VERSION + 1, Ordering::Relaxed);
    assert!(refused(LARGEST).contains(&format!("version {}", VERSION + 1)));
    let ledger = super::super::Ledger::create().unwrap();
    let ledger = ledger.as_fd().try_clone_to_owned().unwrap();
    assert!(ReceivedRequests::adopt(ledger, LARGEST).is_err());
    assert!(super::super::Ledger::adopt(memory_of(&requests), Duration::ZERO).is_err());
}
