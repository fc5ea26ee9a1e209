//! Requests without a reply, and their intents.
//!
//! The kernel sends a request again if the process that received it has died. Repeating a change
//! that took effect would fail, with EEXIST for a file that was created. So before it commits, a
//! change records its intent, and a repetition that finds the intent fulfilled succeeds.

use std::collections::HashMap;
use std::sync::Arc;

use super::Ledger;
use super::shared_memory::SharedMemory;
use super::table::{Slot, Table, TableLayout};
use crate::sync::Mutex;

/// unique; opcode, attempts and epoch; intent.
pub(super) const WORDS: usize = 2 + INTENT_WORDS;
const INTENT_WORDS: usize = 4;
/// The word of an intent that is for a handle.
const HANDLE: usize = 3;

/// A request that was in flight when this many processes died is not tried again: it may be what
/// they died of.
const MAX_ATTEMPTS: u8 = 3;

/// A request that this many processes were not asked for again has its reply.
const MAX_AGE: u32 = 64;

/// What a change is about to commit; the meaning of the numbers is up to its operation. Not all of
/// them are 0.
pub type Intent = [u64; INTENT_WORDS];

pub(super) struct Requests {
    table: Table<WORDS>,
    epoch: u32,
    /// Requests of earlier processes that the kernel may send again.
    unanswered: Mutex<HashMap<u64, (Slot, [u64; WORDS])>>,
}

/// The record of one request.
#[derive(Debug)]
pub struct RequestRecord {
    ledger: Arc<Ledger>,
    /// `None` if the table was full.
    slot: Option<Slot>,
    attempts: u8,
    /// The intent that an earlier process recorded.
    earlier: Option<Intent>,
}

impl Requests {
    pub(super) fn open(memory: &Arc<SharedMemory>, layout: TableLayout, epoch: u64) -> Self {
        let epoch = u32::try_from(epoch & 0xFFFF_FFFF).unwrap_or(0);
        let table = Table::open(memory, layout);
        let mut unanswered = HashMap::new();
        for (slot, words) in table.all() {
            let (_, _, begun) = unpack(words[1]);
            // Several processes may have died before the kernel asked them again. One that is much
            // older has its reply: the process died between sending it and removing the record.
            if epoch.wrapping_sub(begun) <= MAX_AGE {
                unanswered.insert(words[0], (slot, words));
            } else {
                table.remove(slot);
            }
        }
        Self { table, epoch, unanswered: Mutex::new(unanswered) }
    }

    pub(super) fn is_suspect(&self, unique: u64) -> bool {
        let unanswered = self.unanswered.lock();
        unanswered.get(&unique).is_some_and(|(_, words)| unpack(words[1]).1 >= MAX_ATTEMPTS)
    }
}

impl RequestRecord {
    pub(super) fn begin(ledger: &Arc<Ledger>, unique: u64, opcode: u32) -> Arc<Self> {
        let requests = &ledger.requests;
        let known = requests.unanswered.lock().remove(&unique);
        let (slot, attempts, earlier) = if let Some((slot, words)) = known {
            let (_, attempts, _) = unpack(words[1]);
            let attempts = attempts.saturating_add(1);
            requests.table.set(slot, 1, pack(opcode, attempts, requests.epoch));
            let intent: Intent = std::array::from_fn(|index| words[2 + index]);
            (Some(slot), attempts, Some(intent).filter(|intent| *intent != [0; INTENT_WORDS]))
        } else {
            let words = [unique, pack(opcode, 1, requests.epoch), 0, 0, 0, 0];
            (requests.table.add(words), 1, None)
        };
        Arc::new(Self { ledger: Arc::clone(ledger), slot, attempts, earlier })
    }

    /// Returns the intent of an earlier process, which may have taken effect.
    pub fn earlier(&self) -> Option<Intent> {
        self.earlier
    }

    /// Records an intent, before the change is committed. Replaces the one of an earlier attempt.
    pub fn intend(&self, intent: Intent) {
        let Some(slot) = self.slot else { return };
        // The first word last: it says whether there is an intent.
        for (index, word) in intent.into_iter().enumerate().rev() {
            self.ledger.requests.table.set(slot, 2 + index, word);
        }
    }

    /// Adds the handle that was opened for the request to its intent.
    pub fn intend_handle(&self, fh: u64) {
        if let Some(slot) = self.slot {
            self.ledger.requests.table.set(slot, 2 + HANDLE, fh);
        }
    }

    /// Returns the handle that an earlier process opened for the request. The kernel does not know
    /// it.
    pub fn earlier_handle(&self) -> Option<u64> {
        self.earlier.map(|intent| intent[HANDLE]).filter(|fh| *fh != 0)
    }

    /// Whether an earlier process received the request, too.
    pub fn is_repeated(&self) -> bool {
        self.attempts > 1
    }

    /// Removes the record: the request has its reply.
    pub fn end(&self) {
        if let Some(slot) = self.slot {
            self.ledger.requests.table.remove(slot);
        }
    }
}

/// Records are equal if they are the same one.
impl PartialEq for RequestRecord {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for RequestRecord {}

fn pack(opcode: u32, attempts: u8, epoch: u32) -> u64 {
    u64::from(epoch) << 32 | u64::from(attempts) << 24 | u64::from(opcode & 0xFF_FFFF)
}

fn unpack(word: u64) -> (u32, u8, u32) {
    let [opcode_low, opcode_middle, opcode_high, attempts, epoch @ ..] = word.to_le_bytes();
    let opcode = u32::from_le_bytes([opcode_low, opcode_middle, opcode_high, 0]);
    (opcode, attempts, u32::from_le_bytes(epoch))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    /// The ledger after the death of its owner.
    fn next(ledger: Arc<Ledger>) -> Arc<Ledger> {
        let file = ledger.as_fd().try_clone_to_owned().unwrap();
        drop(ledger);
        Ledger::adopt(file, Duration::ZERO).unwrap()
    }

    #[test]
    fn the_packed_word_keeps_its_parts() {
        for parts in [(9, 1, 1), (0xFF_FFFF, 255, u32::MAX), (0, 0, 0)] {
            assert_eq!(unpack(pack(parts.0, parts.1, parts.2)), parts);
        }
    }

    #[test]
    fn a_repeated_request_finds_the_intent_of_the_process_that_died() {
        let ledger = Ledger::create().unwrap();
        ledger.begin_request(2, 9).intend([7, 0, 0, 8]);
        ledger.begin_request(4, 9);
        ledger.begin_request(6, 9).end();
        let ledger = next(ledger);
        assert_eq!(ledger.begin_request(2, 9).earlier(), Some([7, 0, 0, 8]));
        assert_eq!(ledger.begin_request(4, 9).earlier(), None);
        assert_eq!(ledger.begin_request(6, 9).earlier(), None);
        assert_eq!(ledger.begin_request(8, 9).earlier(), None);
    }

    #[test]
    fn a_request_that_several_processes_died_with_is_suspect() {
        let mut ledger = Ledger::create().unwrap();
        for _ in 0..MAX_ATTEMPTS {
            assert!(!ledger.is_suspect(2));
            ledger.begin_request(2, 9);
            ledger = next(ledger);
        }
        assert!(ledger.is_suspect(2));
        assert!(!ledger.is_suspect(4));
    }

    #[test]
    fn a_request_is_known_even_if_a_process_died_before_it_was_repeated() {
        let ledger = Ledger::create().unwrap();
        ledger.begin_request(2, 9).intend([7, 0, 0, 0]);
        let ledger = next(next(ledger));
        assert_eq!(ledger.begin_request(2, 9).earlier(), Some([7, 0, 0, 0]));
    }

    #[test]
    fn a_request_that_is_never_repeated_is_forgotten() {
        let mut ledger = Ledger::create().unwrap();
        ledger.begin_request(2, 9).intend([7, 0, 0, 0]);
        for _ in 0..=MAX_AGE {
            ledger = next(ledger);
        }
        assert!(ledger.requests.table.all().is_empty());
    }
}
