//! One operation at a time on each thing: a second one is turned away, not queued.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

/// The things that are being worked on, by their names.
#[derive(Clone, Default)]
pub struct Busy {
    names: Arc<Mutex<HashSet<String>>>,
}

/// The right to work on something, until it is dropped.
pub struct Turn {
    names: Arc<Mutex<HashSet<String>>>,
    name: String,
}

impl Busy {
    /// The turn for `kind` (such as `volume`) `name`; ABORTED if someone else has it.
    pub fn begin(&self, kind: &str, name: impl Display) -> Result<Turn, Status> {
        let name = format!("{kind} {name}");
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.insert(name.clone()) {
            return Err(Status::aborted(format!("another operation on {name} is under way")));
        }
        Ok(Turn { names: Arc::clone(&self.names), name })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
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
        let _other = busy.begin("volume", "b").unwrap();
        let _same_name = busy.begin("snapshot", "a").unwrap();
        drop(first);
        assert!(busy.begin("volume", "a").is_ok());
    }
}
