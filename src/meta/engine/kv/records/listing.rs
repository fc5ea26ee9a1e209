//! Pages of a directory, and the chunks of a file.

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::engine::kv::KvEngine;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::store::Scan;
use crate::meta::engine::{Cursor, EntryPage, Listings};
use crate::meta::record::Entry;
use crate::meta::{Ino, Name};

#[async_trait]
impl Listings for KvEngine {
    async fn list(&self, dir: Ino, cursor: &Cursor, limit: usize) -> Result<EntryPage> {
        let prefix = prefix::entries(dir);
        let limit = limit.max(1);
        let mut scan = Scan::prefix(prefix.clone()).limit(limit);
        match cursor {
            Cursor::Start => {}
            Cursor::After(name) => {
                let name = Name::unchecked(name.clone());
                scan = scan.after(&StoreKey::Entry(dir, name).encode());
            }
            Cursor::End => return Ok(EntryPage::end()),
            Cursor::Scan(_) => {
                return Err(Error::bad_input("a listing in name order has no scan position"));
            }
        }
        let pairs = self.store.scan(&scan).await?;
        let is_last = pairs.len() < limit;
        let mut page = EntryPage::end();
        for (key, value) in pairs {
            let name = Bytes::from(key).slice(prefix.len()..);
            if !is_last {
                page.next = Cursor::After(name.clone());
            }
            page.add(name, Entry::decode(&value).ok());
        }
        Ok(page)
    }

    async fn chunk_indexes(&self, ino: Ino, _length: u64) -> Result<Vec<u32>> {
        let keys = self.keys_under(&prefix::chunks(ino), |_| true).await?;
        let indexes = keys.iter().filter_map(|key| match StoreKey::decode(key) {
            Some(StoreKey::Chunk(_, index)) => Some(index),
            _ => None,
        });
        Ok(indexes.collect())
    }
}
