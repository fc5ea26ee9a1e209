//! Locks that allow one operation at a time on each volume, snapshot or path. A second operation is
//! refused, not queued.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::sync::Arc;

use tonic::Status;

use crate::sync::Mutex;

/// The held locks, by kind and name.
type HeldLocks = HashMap<String, Holders>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holders {
    Writer,
    /// Operations that only read it.
    Readers(usize),
}

/// All locks of a service. Clones share them.
#[derive(Clone, Default)]
pub struct VolumeLocks {
    held: Arc<Mutex<HeldLocks>>,
}

/// A held lock, released when it is dropped.
pub struct VolumeLock {
    held: Arc<Mutex<HeldLocks>>,
    name: String,
}

impl VolumeLocks {
    /// Locks `kind` (such as `volume`) `name` exclusively. ABORTED if it is locked.
    pub fn lock(&self, kind: &str, name: impl Display) -> Result<VolumeLock, Status> {
        let name = format!("{kind} {name}");
        match self.held.lock().entry(name.clone()) {
            Entry::Occupied(_) => Err(in_progress(&name)),
            Entry::Vacant(vacant) => {
                vacant.insert(Holders::Writer);
                Ok(VolumeLock { held: Arc::clone(&self.held), name })
            }
        }
    }

    /// Locks it together with other readers. ABORTED if it is locked exclusively.
    pub fn lock_shared(&self, kind: &str, name: impl Display) -> Result<VolumeLock, Status> {
        let name = format!("{kind} {name}");
        match self.held.lock().entry(name.clone()).or_insert(Holders::Readers(0)) {
            Holders::Writer => Err(in_progress(&name)),
            Holders::Readers(count) => {
                *count += 1;
                Ok(VolumeLock { held: Arc::clone(&self.held), name })
            }
        }
    }
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        match held.get_mut(&self.name) {
            Some(Holders::Readers(count)) if *count > 1 => *count -= 1,
            _ => {
                held.remove(&self.name);
            }
        }
    }
}

fn in_progress(name: &str) -> Status {
    Status::aborted(format!("another operation on {name} is in progress"))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_second_operation_on_the_same_volume_is_aborted() {
        let locks = VolumeLocks::default();
        let first = locks.lock("volume", "a").unwrap();
        assert_eq!(locks.lock("volume", "a").err().unwrap().code(), Code::Aborted);
        assert_eq!(locks.lock_shared("volume", "a").err().unwrap().code(), Code::Aborted);
        let _other = locks.lock("volume", "b").unwrap();
        let _same_name = locks.lock("snapshot", "a").unwrap();
        drop(first);
        assert!(locks.lock("volume", "a").is_ok());
    }

    #[test]
    fn readers_share_a_lock_and_exclude_a_writer() {
        let locks = VolumeLocks::default();
        let readers =
            [locks.lock_shared("volume", "a").unwrap(), locks.lock_shared("volume", "a").unwrap()];
        for reader in readers {
            assert!(locks.lock("volume", "a").is_err());
            drop(reader);
        }
        assert!(locks.lock("volume", "a").is_ok());
    }
}
