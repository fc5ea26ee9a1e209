//! The setting, counters and elections, and ACL rules.

use std::ops::ControlFlow;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::engine::kv::KvEngine;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::store::Scan;
use crate::meta::engine::kv::values;
use crate::meta::engine::{AclRecords, CounterRecords, SettingRecords};
use crate::meta::record::{AclRule, Attr, Counter};

/// Inode 0 means none and 1 is the root; slice 0 is a hole.
const FIRST_INODE: i64 = 2;
const FIRST_SLICE: i64 = 1;

#[async_trait]
impl SettingRecords for KvEngine {
    async fn load_setting(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.one(&StoreKey::Setting).await?.map(Vec::from))
    }

    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    async fn store_setting(&self, json: &[u8], root: &Attr, trash: Option<&Attr>) -> Result<()> {
        let setting = StoreKey::Setting.encode();
        let trash_key = StoreKey::Attr(Ino::TRASH).encode();
        let first = [(Counter::NextInode, FIRST_INODE), (Counter::NextChunk, FIRST_SLICE)];
        let mut keys = vec![setting.clone(), trash_key.clone()];
        keys.extend(first.iter().map(|(counter, _)| StoreKey::Counter(*counter).encode()));

        self.update("storing the setting", &keys, |values| {
            let mut writes = vec![(setting.clone(), Some(json.to_vec().into()))];
            if let (Some(trash), None) = (trash, &values[1]) {
                writes.push((trash_key.clone(), Some(trash.encode())));
            }
            if values[0].is_none() {
                writes.push((StoreKey::Attr(Ino::ROOT).encode(), Some(root.encode())));
                for ((counter, by), old) in first.iter().zip(&values[2..]) {
                    let value = values::decode_counter(*counter, old.as_ref())? + by;
                    let key = StoreKey::Counter(*counter).encode();
                    writes.push((key, Some(values::encode_counter(*counter, value))));
                }
            }
            Ok((writes, ()))
        })
        .await
    }

    async fn wipe(&self) -> Result<()> {
        self.store.wipe().await
    }
}

#[async_trait]
impl CounterRecords for KvEngine {
    async fn add_counter(&self, counter: Counter, by: i64) -> Result<i64> {
        let key = StoreKey::Counter(counter).encode();
        self.update("adding to a counter", std::slice::from_ref(&key), |values| {
            let sum = values::decode_counter(counter, values[0].as_ref())? + by;
            let writes = match by {
                0 => Vec::new(),
                _ => vec![(key.clone(), Some(values::encode_counter(counter, sum)))],
            };
            Ok((writes, sum))
        })
        .await
    }

    async fn counter(&self, counter: Counter) -> Result<i64> {
        let raw = self.one(&StoreKey::Counter(counter)).await?;
        values::decode_counter(counter, raw.as_ref())
    }

    async fn claim(&self, counter: Counter, now: i64, gap: i64) -> Result<bool> {
        let key = StoreKey::Counter(counter).encode();
        self.update("claiming a job", std::slice::from_ref(&key), |values| {
            let last = values::decode_counter(counter, values[0].as_ref())?;
            if last > now.saturating_sub(gap) {
                return Ok((Vec::new(), false));
            }
            Ok((vec![(key.clone(), Some(values::encode_counter(counter, now)))], true))
        })
        .await
    }
}

#[async_trait]
impl AclRecords for KvEngine {
    async fn insert_acl(&self, rule: &AclRule) -> Result<u32> {
        let counter = StoreKey::Counter(Counter::AclMaxId).encode();
        self.update("adding an ACL rule", std::slice::from_ref(&counter), |values| {
            let id = values::decode_number(values[0].as_ref())? + 1;
            let short = u32::try_from(id).map_err(|_| {
                Error::damaged("counter aclMaxId", format!("{id} is not a valid ACL id"))
            })?;
            let writes = vec![
                (counter.clone(), Some(values::encode_number(id))),
                (StoreKey::Acl(short).encode(), Some(rule.encode())),
            ];
            Ok((writes, short))
        })
        .await
    }

    async fn acls(&self) -> Result<Vec<(u32, AclRule)>> {
        let mut rules = Vec::new();
        self.walk(Scan::prefix(prefix::ACLS.to_vec()), |key, value| {
            if let Some(StoreKey::Acl(id)) = StoreKey::decode(key) {
                rules.push((id, AclRule::decode(&value)?));
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(rules)
    }
}
