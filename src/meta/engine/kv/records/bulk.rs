//! Whole volumes: all pairs in, all pairs out.

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::meta::engine::kv::KvEngine;
use crate::meta::engine::kv::keys::{StoreKey, prefix};
use crate::meta::engine::kv::store::{Pair, Scan};
use crate::meta::engine::kv::values::{self, fixed};
use crate::meta::engine::{BulkRecords, CommitError, Cursor, Part, Stored, StoredPage};
use crate::meta::record::{Attr, Counter, DirStat, Entry, SliceSize, chunk};

/// Pairs of one page.
const PAGE: usize = 2000;
/// Pairs and bytes of one transaction.
const PAIRS: usize = 2000;
const BYTES: usize = 4 << 20;
/// Attempts of one transaction.
const ATTEMPTS: usize = 5;
/// The records of nodes.
const NODES: &[u8] = b"A";

#[async_trait]
impl BulkRecords for KvEngine {
    async fn is_empty(&self) -> Result<bool> {
        let any = Scan::prefix(Vec::new()).keys_only().limit(1);
        Ok(self.store.scan(&any).await?.is_empty())
    }

    async fn put_stored(&self, records: Vec<Stored>) -> Result<()> {
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        for record in records {
            let (key, value) = encode(record);
            if value.is_empty() && self.store.properties().refuses_empty_values {
                return Err(Error::bad_input(format!(
                    "{} cannot store an empty value: key {:?}",
                    self.store.address(),
                    String::from_utf8_lossy(&key)
                )));
            }
            bytes += key.len() + value.len();
            pairs.push((key, value));
            if pairs.len() >= PAIRS || bytes >= BYTES {
                self.put_pairs(std::mem::take(&mut pairs)).await?;
                bytes = 0;
            }
        }
        self.put_pairs(pairs).await
    }

    async fn finish_load(&self, setting: &[u8]) -> Result<()> {
        let writes = vec![
            (StoreKey::Setting.encode(), Some(setting.to_vec().into())),
            (StoreKey::Counter(Counter::UnfinishedLoad).encode(), None),
        ];
        self.write("finishing a load", writes).await
    }

    async fn scan_stored(&self, part: Part, cursor: &Cursor) -> Result<StoredPage> {
        let prefix = match part {
            Part::Tree => NODES,
            Part::SliceRefs => prefix::SLICE_REFS,
            Part::DirStats => prefix::DIR_STATS,
        };
        let mut scan = Scan::prefix(prefix.to_vec()).limit(PAGE);
        match cursor {
            Cursor::Start => {}
            Cursor::After(key) => scan = scan.after(key),
            Cursor::End => return Ok(StoredPage::end()),
            Cursor::Scan(_) => return Err(Error::bad_input("a scan continues after a key")),
        }
        let pairs = self.store.scan(&scan).await?;
        let mut page = StoredPage::end();
        if pairs.len() == PAGE
            && let Some((last, _)) = pairs.last()
        {
            page.next = Cursor::After(last.clone().into());
        }
        for (key, value) in pairs {
            if let Some(record) = decode(&key, &value).transpose() {
                page.add(record);
            }
        }
        Ok(page)
    }
}

impl KvEngine {
    /// Writes without reading: writing the same again does no harm, so a commit whose response was
    /// lost is repeated.
    async fn put_pairs(&self, pairs: Vec<Pair>) -> Result<()> {
        if pairs.is_empty() {
            return Ok(());
        }
        let mut failure = Error::Contended("a load");
        for _ in 0..ATTEMPTS {
            let mut kv = self.store.begin().await?;
            for (key, value) in &pairs {
                kv.put(key.clone(), value.clone());
            }
            match kv.commit().await {
                Ok(()) => return Ok(()),
                Err(CommitError::Failed(error)) => return Err(error),
                Err(CommitError::Unknown(error)) => failure = error,
                Err(CommitError::Conflict) => {}
            }
        }
        Err(failure)
    }
}

fn encode(record: Stored) -> (Vec<u8>, Bytes) {
    let (key, value) = match record {
        Stored::Counter(counter, value) => {
            (StoreKey::Counter(counter), values::encode_counter(counter, value))
        }
        Stored::Attr(ino, attr) => (StoreKey::Attr(ino), attr.encode()),
        Stored::Entry(dir, name, entry) => (StoreKey::Entry(dir, name), fixed(entry.encode())),
        Stored::Parent { ino, parent, count } => {
            (StoreKey::Parent { ino, parent }, values::encode_number(count))
        }
        Stored::Chunk(ino, index, slices) => (StoreKey::Chunk(ino, index), chunk::encode(&slices)),
        Stored::SliceRef(slice, refs) => {
            (StoreKey::SliceRef(slice.id, slice.size), values::encode_number(refs - 1))
        }
        Stored::Symlink(ino, target) => (StoreKey::Symlink(ino), target),
        Stored::Xattr(ino, name, value) => (StoreKey::Xattr(ino, name), value),
        Stored::Sustained(sid, ino) => (StoreKey::Sustained(sid, ino), values::MARK),
        Stored::DeletedFile(file) => (
            StoreKey::DeletedFile { ino: file.ino, length: file.length },
            values::encode_time(file.at),
        ),
        Stored::DirStat(ino, stat) => (StoreKey::DirStat(ino), fixed(stat.encode())),
        Stored::Quota(key, quota) => (StoreKey::Quota(key), fixed(quota.encode())),
        Stored::Acl(id, rule) => (StoreKey::Acl(id), rule.encode()),
    };
    (key.encode(), value)
}

/// Returns the record of a pair; none if it says nothing, such as a count of zero.
fn decode(key: &[u8], value: &Bytes) -> Result<Option<Stored>> {
    let Some(key) = StoreKey::decode(key) else { return Ok(None) };
    let locate = |error| match error {
        Error::Damaged { cause, .. } => Error::damaged(format!("{key:?}"), cause),
        other => other,
    };
    let record = || -> Result<Option<Stored>> {
        Ok(Some(match &key {
            StoreKey::Attr(ino) => Stored::Attr(*ino, Attr::decode(value)?),
            StoreKey::Entry(dir, name) => {
                let name = crate::meta::Name::new(name.as_bytes())?;
                Stored::Entry(*dir, name, Entry::decode(value)?)
            }
            StoreKey::Parent { ino, parent } => match values::decode_number(Some(value))? {
                count if count <= 0 => return Ok(None),
                count => Stored::Parent { ino: *ino, parent: *parent, count },
            },
            StoreKey::Chunk(ino, index) => Stored::Chunk(*ino, *index, chunk::decode(value)?),
            StoreKey::Symlink(ino) => Stored::Symlink(*ino, value.clone()),
            StoreKey::Xattr(ino, name) => Stored::Xattr(*ino, name.clone(), value.clone()),
            StoreKey::SliceRef(id, size) => match values::decode_number(Some(value))? {
                0 => return Ok(None),
                more => Stored::SliceRef(SliceSize { id: *id, size: *size }, more + 1),
            },
            StoreKey::DirStat(ino) => Stored::DirStat(*ino, DirStat::decode(value)?),
            _ => return Ok(None),
        }))
    };
    record().map_err(locate)
}
