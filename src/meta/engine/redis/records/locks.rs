//! The locks that a session holds.

use redis::Pipeline;

use super::super::RedisEngine;
use super::super::client::reply;
use super::super::transaction::read;
use super::keyspace;
use crate::error::Result;
use crate::meta::engine::{HeldKind, HeldLock};
use crate::meta::{Ino, Sid};

/// A parsed key of locks.
enum LockKey {
    Flock(Ino),
    Plock(Ino),
}

impl RedisEngine {
    pub(crate) async fn drop_locks(&self, sid: Sid) -> Result<()> {
        let locked = self.keyspace.locked(sid);
        let keys = self.lock_keys(sid).await?;
        for some in keys.chunks(100) {
            self.apply(|batch| {
                for (key, _) in some {
                    batch.release_lock(key, &locked, keyspace::lock_field_stem(sid));
                }
            })
            .await?;
        }
        Ok(())
    }

    pub(crate) async fn held_locks(&self, sid: Sid) -> Result<Vec<HeldLock>> {
        let keys = self.lock_keys(sid).await?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = Pipeline::with_capacity(keys.len());
        for (key, _) in &keys {
            pipe.cmd("HGETALL").arg(key);
        }
        let mut replies = self.client.query(&pipe).await?;
        let mut held = Vec::new();
        for (key, lock) in keys {
            let pairs = replies.pairs(&key)?;
            match lock {
                LockKey::Flock(ino) => {
                    for lock in read::flocks(&key, &pairs)?.into_iter().filter(|l| l.sid == sid) {
                        let kind = HeldKind::Flock(lock.kind);
                        held.push(HeldLock { ino, owner: lock.owner, kind });
                    }
                }
                LockKey::Plock(ino) => {
                    for lock in read::plocks(&key, &pairs)?.into_iter().filter(|l| l.sid == sid) {
                        let kind = HeldKind::Plock(lock.ranges);
                        held.push(HeldLock { ino, owner: lock.owner, kind });
                    }
                }
            }
        }
        Ok(held)
    }

    /// Returns the keys of the locks that the session holds. Skips members that are not locks of this
    /// volume.
    async fn lock_keys(&self, sid: Sid) -> Result<Vec<(String, LockKey)>> {
        let locked = self.keyspace.locked(sid);
        let mut cmd = redis::cmd("SMEMBERS");
        cmd.arg(&locked);
        let members = self.client.query_one(cmd).await?.list(&locked)?;
        let mut keys = Vec::with_capacity(members.len());
        for member in members {
            let Ok(key) = String::from_utf8(member.to_vec()) else { continue };
            let Some(name) = key.strip_prefix(self.keyspace.prefix()) else { continue };
            let ino = |digits: &str| reply::id(digits.as_bytes(), &locked).map(Ino);
            let lock = if let Some(digits) = name.strip_prefix("lockf") {
                LockKey::Flock(ino(digits)?)
            } else if let Some(digits) = name.strip_prefix("lockp") {
                LockKey::Plock(ino(digits)?)
            } else {
                continue;
            };
            keys.push((key, lock));
        }
        Ok(keys)
    }
}
