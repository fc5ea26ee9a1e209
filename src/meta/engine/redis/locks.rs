//! Locks of a session.

use redis::Pipeline;

use super::super::{HeldKind, HeldLock};
use super::{RedisEngine, names, read, reply};
use crate::error::Result;
use crate::meta::{Ino, Sid};

/// A lock's key, taken apart.
enum Lock {
    Flock(Ino),
    Plock(Ino),
}

impl RedisEngine {
    pub(super) async fn drop_locks(&self, sid: Sid) -> Result<()> {
        let locked = self.names.locked(sid);
        let keys = self.lock_keys(sid).await?;
        for some in keys.chunks(100) {
            self.apply(|batch| {
                for (key, _) in some {
                    batch.release_lock(key, &locked, names::lock_field_stem(sid));
                }
            })
            .await?;
        }
        Ok(())
    }

    pub(super) async fn held_locks(&self, sid: Sid) -> Result<Vec<HeldLock>> {
        let keys = self.lock_keys(sid).await?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = Pipeline::with_capacity(keys.len());
        for (key, _) in &keys {
            pipe.cmd("HGETALL").arg(key);
        }
        let mut replies = self.wire.ask(&pipe).await?;
        let mut held = Vec::new();
        for (key, lock) in keys {
            let pairs = replies.pairs(&key)?;
            match lock {
                Lock::Flock(ino) => {
                    for lock in read::flocks(&key, &pairs)?.into_iter().filter(|l| l.sid == sid) {
                        let kind = HeldKind::Flock(lock.kind);
                        held.push(HeldLock { ino, owner: lock.owner, kind });
                    }
                }
                Lock::Plock(ino) => {
                    for lock in read::plocks(&key, &pairs)?.into_iter().filter(|l| l.sid == sid) {
                        let kind = HeldKind::Plock(lock.ranges);
                        held.push(HeldLock { ino, owner: lock.owner, kind });
                    }
                }
            }
        }
        Ok(held)
    }

    /// Keys of what the session has locked; members that name no lock of this volume are left out.
    async fn lock_keys(&self, sid: Sid) -> Result<Vec<(String, Lock)>> {
        let locked = self.names.locked(sid);
        let mut cmd = redis::cmd("SMEMBERS");
        cmd.arg(&locked);
        let members = self.wire.ask_one(cmd).await?.list(&locked)?;
        let mut keys = Vec::with_capacity(members.len());
        for member in members {
            let Ok(key) = String::from_utf8(member.to_vec()) else { continue };
            let Some(name) = key.strip_prefix(self.names.prefix()) else { continue };
            let ino = |digits: &str| reply::id(digits.as_bytes(), &locked).map(Ino);
            let lock = if let Some(digits) = name.strip_prefix("lockf") {
                Lock::Flock(ino(digits)?)
            } else if let Some(digits) = name.strip_prefix("lockp") {
                Lock::Plock(ino(digits)?)
            } else {
                continue;
            };
            keys.push((key, lock));
        }
        Ok(keys)
    }
}
