//! One operation at a time on each thing: a second one is turned away, not queued.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::sync::Arc;

use tonic::Status;

use crate::sync::Mutex;

/// How many have a turn with each thing, by its name.
type Turns = HashMap<String, Holders>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holders {
    One,
    /// Who only looks at it.
    Several(usize),
}

/// The things that are being worked on.
#[derive(Clone, Default)]
pub struct Busy {
    turns: Arc<Mutex<Turns>>,
}

/// The right to work on something, until it is dropped.
pub struct Turn {
    turns: Arc<Mutex<Turns>>,
    name: String,
}

impl Busy {
    /// The turn for `kind` (such as `volume`) `name`, alone; ABORTED if someone else has it.
    pub fn begin(&self, kind: &str, name: impl Display) -> Result<Turn, Status> {
        let name = format!("{kind} {name}");
        match self.turns.lock().entry(name.clone()) {
            Entry::Occupied(_) => Err(taken(&name)),
            Entry::Vacant(free) => {
                free.insert(Holders::One);
                Ok(Turn { turns: Arc::clone(&self.turns), name })
            }
        }
    }

    /// As [`Busy::begin`], beside others who only look at it.
    pub fn share(&self, kind: &str, name: impl Display) -> Result<Turn, Status> {
        let name = format!("{kind} {name}");
        match self.turns.lock().entry(name.clone()).or_insert(Holders::Several(0)) {
            Holders::One => Err(taken(&name)),
            Holders::Several(count) => {
                *count += 1;
                Ok(Turn { turns: Arc::clone(&self.turns), name })
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.turns.lock();
        match turns.get_mut(&self.name) {
            Some(Holders::Several(count)) if *count > 1 => *count -= 1,
            _ => {
                turns.remove(&self.name);
            }
        }
    }
}

fn taken(name: &str) -> Status {
    Status::aborted(format!("another operation on {name} is under way"))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_second_operation_on_the_same_thing_is_aborted() {
        let busy = Busy::default();
        let first = busy.begin("volume", "a").unwrap();
        assert_eq!(busy.begin("volume", "a").err().unwrap().code(), Code::Aborted);
        assert_eq!(busy.share("volume", "a").err().unwrap().code(), Code::Aborted);
        let _other = busy.begin("volume", "b").unwrap();
        let _same_name = busy.begin("snapshot", "a").unwrap();
        drop(first);
        assert!(busy.begin("volume", "a").is_ok());
    }

    #[test]
    fn those_who_only_look_keep_out_who_changes() {
        let busy = Busy::default();
        let looks = [busy.share("volume", "a").unwrap(), busy.share("volume", "a").unwrap()];
        for look in looks {
            assert!(busy.begin("volume", "a").is_err());
            drop(look);
        }
        assert!(busy.begin("volume", "a").is_ok());
    }
}
