//! Sessions with their locks and sustained files.

use std::collections::HashMap;
use std::ops::ControlFlow;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;
use crate::meta::engine::kv::KvEngine;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::store::Scan;
use crate::meta::engine::kv::values;
use crate::meta::engine::{HeldKind, HeldLock, SessionRecords, StoredSession};
use crate::meta::{Ino, Sid};

/// How long a legacy session lasts after its last heartbeat, in seconds.
const LEGACY_TIMEOUT: i64 = 300;

#[async_trait]
impl SessionRecords for KvEngine {
    async fn put_session(&self, sid: Sid, expire: i64, info: &[u8]) -> Result<()> {
        // Not every store can hold an empty value.
        let info = (!info.is_empty()).then(|| Bytes::copy_from_slice(info));
        let writes = vec![
            (StoreKey::SessionExpire(sid).encode(), Some(values::encode_time(expire))),
            (StoreKey::SessionInfo(sid).encode(), info),
        ];
        self.write("storing a session", writes).await
    }

    async fn extend_session(&self, sid: Sid, expire: i64) -> Result<bool> {
        let key = StoreKey::SessionExpire(sid).encode();
        self.update("extending a session", std::slice::from_ref(&key), |values| {
            if values[0].is_none() {
                return Ok((Vec::new(), false));
            }
            Ok((vec![(key.clone(), Some(values::encode_time(expire)))], true))
        })
        .await
    }

    async fn session(&self, sid: Sid) -> Result<Option<StoredSession>> {
        let keys = [
            StoreKey::SessionExpire(sid).encode(),
            StoreKey::SessionInfo(sid).encode(),
            StoreKey::SessionHeartbeat(sid).encode(),
        ];
        let values = self.store.get(&keys).await?;
        let expire = match (&values[0], &values[2]) {
            (Some(expire), _) => values::decode_time(Some(expire))?,
            (None, Some(seen)) => values::decode_time(Some(seen))? + LEGACY_TIMEOUT,
            (None, None) => return Ok(None),
        };
        let info = values[1].as_ref().map(|raw| raw.to_vec()).unwrap_or_default();
        Ok(Some(StoredSession { sid, expire, info }))
    }

    async fn sessions(&self) -> Result<Vec<StoredSession>> {
        let mut infos = HashMap::new();
        self.walk(Scan::prefix(prefix::SESSION_INFOS.to_vec()), |key, value| {
            if let Some(StoreKey::SessionInfo(sid)) = StoreKey::decode(key) {
                infos.insert(sid, value.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        let mut sessions = Vec::new();
        self.walk_expiries(|sid, expire| {
            let info = infos.remove(&sid).unwrap_or_default();
            sessions.push(StoredSession { sid, expire, info });
            ControlFlow::Continue(())
        })
        .await?;
        Ok(sessions)
    }

    async fn stale_sessions(&self, now: i64, limit: usize) -> Result<Vec<Sid>> {
        let mut stale = Vec::new();
        self.walk_expiries(|sid, expire| {
            if stale.len() == limit {
                return ControlFlow::Break(());
            }
            if expire < now {
                stale.push(sid);
            }
            ControlFlow::Continue(())
        })
        .await?;
        Ok(stale)
    }

    async fn release_locks(&self, sid: Sid) -> Result<()> {
        let mut last = None;
        for lock in self.locks_of(sid).await? {
            let key = match lock.kind {
                HeldKind::Flock(_) => StoreKey::Flocks(lock.ino),
                HeldKind::Plock(_) => StoreKey::Plocks(lock.ino),
            };
            // Several owners of one session may hold locks on the same file.
            if last.as_ref() != Some(&key) {
                self.release_locks_on(&key, sid).await?;
            }
            last = Some(key);
        }
        Ok(())
    }

    /// Locks are stored by inode, so this reads all of them.
    async fn locks_of(&self, sid: Sid) -> Result<Vec<HeldLock>> {
        let mut held = Vec::new();
        self.walk(Scan::prefix(prefix::FLOCKS.to_vec()), |key, value| {
            if let Some(StoreKey::Flocks(ino)) = StoreKey::decode(key) {
                for lock in values::decode_flocks(&value)?.iter().filter(|lock| lock.sid == sid) {
                    let kind = HeldKind::Flock(lock.kind);
                    held.push(HeldLock { ino, owner: lock.owner, kind });
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        self.walk(Scan::prefix(prefix::PLOCKS.to_vec()), |key, value| {
            if let Some(StoreKey::Plocks(ino)) = StoreKey::decode(key) {
                for lock in values::decode_plocks(&value)?.into_iter().filter(|l| l.sid == sid) {
                    let kind = HeldKind::Plock(lock.ranges);
                    held.push(HeldLock { ino, owner: lock.owner, kind });
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(held)
    }

    async fn sustained(&self, sid: Sid) -> Result<Vec<Ino>> {
        let keys = self.keys_under(&prefix::sustained(sid), |_| true).await?;
        let inodes = keys.iter().filter_map(|key| match StoreKey::decode(key) {
            Some(StoreKey::Sustained(_, ino)) => Some(ino),
            _ => None,
        });
        Ok(inodes.collect())
    }

    async fn remove_session(&self, sid: Sid) -> Result<()> {
        let keys = [
            StoreKey::SessionExpire(sid),
            StoreKey::SessionHeartbeat(sid),
            StoreKey::SessionInfo(sid),
        ];
        let writes = keys.iter().map(|key| (key.encode(), None)).collect();
        self.write("removing a session", writes).await
    }
}

impl KvEngine {
    /// Passes every session and its expiry to `visit`, current sessions before legacy ones.
    async fn walk_expiries(
        &self,
        mut visit: impl FnMut(Sid, i64) -> ControlFlow<()> + Send,
    ) -> Result<()> {
        for kind in [prefix::SESSION_EXPIRES, prefix::SESSION_HEARTBEATS] {
            self.walk(Scan::prefix(kind.to_vec()), |key, value| {
                let time = values::decode_time(Some(&value))?;
                Ok(match StoreKey::decode(key) {
                    Some(StoreKey::SessionExpire(sid)) => visit(sid, time),
                    Some(StoreKey::SessionHeartbeat(sid)) => visit(sid, time + LEGACY_TIMEOUT),
                    _ => ControlFlow::Continue(()),
                })
            })
            .await?;
        }
        Ok(())
    }

    async fn release_locks_on(&self, key: &StoreKey, sid: Sid) -> Result<()> {
        let raw_key = key.encode();
        self.update("releasing locks", std::slice::from_ref(&raw_key), |values| {
            let raw = values[0].as_deref().unwrap_or_default();
            let left = if let StoreKey::Flocks(_) = key {
                let mut locks = values::decode_flocks(raw)?;
                locks.retain(|lock| lock.sid != sid);
                values::encode_flocks(&locks)
            } else {
                let mut locks = values::decode_plocks(raw)?;
                locks.retain(|lock| lock.sid != sid);
                values::encode_plocks(&locks)
            };
            Ok((vec![(raw_key.clone(), (!left.is_empty()).then_some(left))], ()))
        })
        .await
    }
}
