//! Whole volumes: all keys in, all keys out.

use bytes::Bytes;
use redis::Pipeline;

use super::super::RedisEngine;
use super::super::client::reply::{self, Replies};
use super::super::transaction::batch::ValueType;
use super::keyspace;
use crate::error::{Error, Result};
use crate::meta::engine::{Cursor, Part, Stored, StoredPage};
use crate::meta::record::{Attr, Counter, DirStat, Entry, Slice, chunk};
use crate::meta::{Ino, Name};

/// Keys or fields of one page.
const PAGE: usize = 2000;
/// Commands of one request.
const COMMANDS: usize = 1000;
/// A directory with more entries is listed by the caller.
const LARGE_DIR: usize = 1000;

/// What a key of the tree holds.
#[derive(Debug, Clone, Copy)]
enum TreeKey {
    Attr(Ino),
    Entries(Ino),
    Parents(Ino),
    Chunk(Ino, u32),
    Symlink(Ino),
    Xattrs(Ino),
}

impl RedisEngine {
    /// Returns whether the database is empty; in a cluster, whether no key has the prefix.
    pub(crate) async fn holds_nothing(&self) -> Result<bool> {
        if !self.client.is_cluster() {
            return Ok(self.client.query_one(redis::cmd("DBSIZE")).await?.int("DBSIZE")? == 0);
        }
        let mut cursor = 0;
        loop {
            let (next, keys) = self.scan_keys(cursor).await?;
            if !keys.is_empty() {
                return Ok(false);
            }
            if next == 0 {
                return Ok(true);
            }
            cursor = next;
        }
    }

    /// Writes records in requests that may be repeated: each command sets a whole value.
    pub(crate) async fn write_stored(&self, records: Vec<Stored>) -> Result<()> {
        let mut records = records.into_iter().peekable();
        while records.peek().is_some() {
            let mut pipe = Pipeline::with_capacity(COMMANDS);
            let mut commands = 0;
            while commands < COMMANDS
                && let Some(record) = records.next()
            {
                commands += self.set(&mut pipe, record);
            }
            let mut replies = self.client.query(&pipe).await?;
            for _ in 0..commands {
                replies.value("a record")?;
            }
        }
        Ok(())
    }

    pub(crate) async fn end_load(&self, setting: &[u8]) -> Result<()> {
        let setting = Bytes::copy_from_slice(setting);
        self.apply(|batch| {
            batch.call(ValueType::Any, "SET", &self.keyspace.setting(), [setting]);
            let mark = self.keyspace.counter(Counter::UnfinishedLoad);
            batch.call(ValueType::Any, "DEL", &mark, []);
        })
        .await?;
        Ok(())
    }

    pub(crate) async fn stored_page(&self, part: Part, cursor: &Cursor) -> Result<StoredPage> {
        let position = match cursor {
            Cursor::Start => 0,
            Cursor::Scan(position) => *position,
            Cursor::End => return Ok(StoredPage::end()),
            Cursor::After(_) => return Err(Error::bad_input("a scan continues at a position")),
        };
        let (next, mut page) = match part {
            Part::Tree => self.tree_page(position).await?,
            Part::SliceRefs => self.slice_ref_page(position).await?,
            Part::DirStats => self.dir_stat_page(position).await?,
        };
        page.next = if next == 0 { Cursor::End } else { Cursor::Scan(next) };
        Ok(page)
    }

    async fn scan_keys(&self, cursor: u64) -> Result<(u64, Vec<Bytes>)> {
        let mut cmd = redis::cmd("SCAN");
        cmd.arg(cursor).arg("MATCH").arg(format!("{}*", self.keyspace.prefix()));
        cmd.arg("COUNT").arg(PAGE);
        self.client.query_one(cmd).await?.page("SCAN")
    }

    async fn tree_page(&self, cursor: u64) -> Result<(u64, StoredPage)> {
        let (next, keys) = self.scan_keys(cursor).await?;
        let keys: Vec<(TreeKey, Bytes)> =
            keys.into_iter().filter_map(|key| Some((self.tree_key(&key)?, key))).collect();
        let mut page = StoredPage::default();
        for some in keys.chunks(COMMANDS) {
            let mut pipe = Pipeline::with_capacity(some.len());
            for (kind, key) in some {
                read(&mut pipe, *kind, key);
            }
            let mut replies = self.client.query(&pipe).await?;
            for (kind, key) in some {
                take(&mut replies, *kind, &String::from_utf8_lossy(key), &mut page)?;
            }
        }
        Ok((next, page))
    }

    fn tree_key(&self, key: &[u8]) -> Option<TreeKey> {
        if !self.keyspace.owns(key) {
            return None;
        }
        let name =
            std::str::from_utf8(key.strip_prefix(self.keyspace.prefix().as_bytes())?).ok()?;
        let (letter, rest) = name.split_at_checked(1)?;
        if letter == "c" {
            let (ino, index) = rest.split_once('_')?;
            return Some(TreeKey::Chunk(Ino(ino.parse().ok()?), index.parse().ok()?));
        }
        let ino = Ino(rest.parse().ok()?);
        Some(match letter {
            "i" => TreeKey::Attr(ino),
            "d" => TreeKey::Entries(ino),
            "p" => TreeKey::Parents(ino),
            "s" => TreeKey::Symlink(ino),
            "x" => TreeKey::Xattrs(ino),
            _ => return None,
        })
    }

    async fn slice_ref_page(&self, cursor: u64) -> Result<(u64, StoredPage)> {
        let key = self.keyspace.slice_refs();
        let (next, pairs) = self.scan_hash(&key, cursor).await?;
        let mut page = StoredPage::default();
        for (field, raw) in pairs {
            // The stored number is one less than the count.
            match (keyspace::parse_slice_field(&field), reply::number(&raw, &key)) {
                (_, Ok(0)) => {}
                (Some(slice), Ok(more)) => page.add(Ok(Stored::SliceRef(slice, more + 1))),
                (None, _) => page.damaged.push(format!("a field of {key}")),
                (_, Err(error)) => page.damaged.push(error.to_string()),
            }
        }
        Ok((next, page))
    }

    async fn dir_stat_page(&self, cursor: u64) -> Result<(u64, StoredPage)> {
        let hashes = self.keyspace.dir_stats();
        let (next, pairs) = self.scan_hash(&hashes.length, cursor).await?;
        let mut page = StoredPage::default();
        if pairs.is_empty() {
            return Ok((next, page));
        }
        let mut pipe = Pipeline::new();
        for key in [&hashes.space, &hashes.inodes] {
            pipe.cmd("HMGET").arg(key);
            for (field, _) in &pairs {
                pipe.arg(&field[..]);
            }
        }
        let mut replies = self.client.query(&pipe).await?;
        let (spaces, inodes) = (replies.options(&hashes.space)?, replies.options(&hashes.inodes)?);
        for (((field, length), space), inodes) in pairs.into_iter().zip(spaces).zip(inodes) {
            let number =
                |raw: Option<Bytes>, key: &str| raw.map_or(Ok(0), |raw| reply::number(&raw, key));
            let stat = || -> Result<Stored> {
                let stat = DirStat {
                    length: reply::number(&length, &hashes.length)?,
                    space: number(space, &hashes.space)?,
                    inodes: number(inodes, &hashes.inodes)?,
                };
                Ok(Stored::DirStat(Ino(reply::id(&field, &hashes.length)?), stat))
            };
            page.add(stat());
        }
        Ok((next, page))
    }

    /// Adds the commands that write a record and returns their number.
    fn set(&self, pipe: &mut Pipeline, record: Stored) -> usize {
        let keys = &self.keyspace;
        match record {
            Stored::Counter(counter, value) => {
                let by = i64::from(matches!(counter, Counter::NextInode | Counter::NextChunk));
                pipe.cmd("SET").arg(keys.counter(counter)).arg(value - by);
            }
            Stored::Attr(ino, attr) => {
                pipe.cmd("SET").arg(keys.attr(ino)).arg(&attr.encode()[..]);
            }
            Stored::Entry(dir, name, entry) => {
                pipe.cmd("HSET").arg(keys.entries(dir)).arg(name.as_bytes());
                pipe.arg(&entry.encode()[..]);
            }
            Stored::Parent { ino, parent, count } => {
                pipe.cmd("HSET").arg(keys.parents(ino)).arg(parent.0).arg(count);
            }
            Stored::Chunk(ino, index, slices) => {
                let key = keys.chunk(ino, index);
                pipe.cmd("DEL").arg(&key);
                if slices.is_empty() {
                    return 1;
                }
                pipe.cmd("RPUSH").arg(&key);
                for slice in &slices {
                    pipe.arg(&chunk::encode(std::slice::from_ref(slice))[..]);
                }
                return 2;
            }
            Stored::SliceRef(slice, refs) => {
                pipe.cmd("HSET").arg(keys.slice_refs()).arg(keyspace::slice_field(slice));
                pipe.arg(refs - 1);
            }
            Stored::Symlink(ino, target) => {
                pipe.cmd("SET").arg(keys.symlink(ino)).arg(&target[..]);
            }
            Stored::Xattr(ino, name, value) => {
                pipe.cmd("HSET").arg(keys.xattrs(ino)).arg(name.as_bytes()).arg(&value[..]);
            }
            Stored::Sustained(sid, ino) => {
                pipe.cmd("SADD").arg(keys.sustained(sid)).arg(ino.0);
            }
            Stored::DeletedFile(file) => {
                pipe.cmd("ZADD").arg(keys.deleted_files()).arg(file.at);
                pipe.arg(keyspace::deleted_member(file.ino, file.length));
            }
            Stored::DirStat(ino, stat) => {
                let hashes = keys.dir_stats();
                for (key, value) in [
                    (hashes.length, stat.length),
                    (hashes.space, stat.space),
                    (hashes.inodes, stat.inodes),
                ] {
                    pipe.cmd("HSET").arg(key).arg(ino.0).arg(value);
                }
                return 3;
            }
            Stored::Quota(key, quota) => {
                let (hashes, field) = (keys.quotas(key), keyspace::quota_field(key));
                pipe.cmd("HSET").arg(hashes.limits).arg(&field).arg(&quota.encode_limits()[..]);
                pipe.cmd("HSET").arg(hashes.space).arg(&field).arg(quota.used_space);
                pipe.cmd("HSET").arg(hashes.inodes).arg(&field).arg(quota.used_inodes);
                return 3;
            }
            Stored::Acl(id, rule) => {
                pipe.cmd("HSET").arg(keys.acl()).arg(id).arg(&rule.encode()[..]);
            }
        }
        1
    }
}

fn read(pipe: &mut Pipeline, kind: TreeKey, key: &[u8]) {
    match kind {
        TreeKey::Attr(_) | TreeKey::Symlink(_) => pipe.cmd("GET").arg(key),
        TreeKey::Entries(_) => pipe.cmd("HSCAN").arg(key).arg(0).arg("COUNT").arg(LARGE_DIR),
        TreeKey::Parents(_) | TreeKey::Xattrs(_) => pipe.cmd("HGETALL").arg(key),
        TreeKey::Chunk(..) => pipe.cmd("LRANGE").arg(key).arg(0).arg(-1),
    };
}

/// Takes the reply about a key. A key that vanished meanwhile has no records.
fn take(replies: &mut Replies, kind: TreeKey, key: &str, page: &mut StoredPage) -> Result<()> {
    match kind {
        TreeKey::Attr(ino) => {
            if let Some(raw) = replies.bytes(key)? {
                let attr = reply::at(key, Attr::decode(&raw));
                page.add(attr.map(|attr| Stored::Attr(ino, attr)));
            }
        }
        TreeKey::Symlink(ino) => {
            page.records.extend(replies.bytes(key)?.map(|target| Stored::Symlink(ino, target)));
        }
        TreeKey::Entries(dir) => {
            let (next, items) = replies.page(key)?;
            if next != 0 {
                page.large_dirs.push(dir);
                return Ok(());
            }
            for (name, raw) in reply::pairs(items) {
                let entry =
                    || Ok(Stored::Entry(dir, Name::from_bytes(name)?, Entry::decode(&raw)?));
                page.add(reply::at(key, entry()));
            }
        }
        TreeKey::Parents(ino) => {
            for (parent, count) in replies.pairs(key)? {
                let parent = reply::id(&parent, key).map(Ino);
                let count = reply::number(&count, key);
                match (parent, count) {
                    (Ok(_), Ok(count)) if count <= 0 => {}
                    (Ok(parent), Ok(count)) => {
                        page.add(Ok(Stored::Parent { ino, parent, count }));
                    }
                    (Err(error), _) | (_, Err(error)) => page.damaged.push(error.to_string()),
                }
            }
        }
        TreeKey::Xattrs(ino) => {
            let pairs = replies.pairs(key)?.into_iter();
            page.records.extend(
                pairs.map(|(name, value)| Stored::Xattr(ino, Name::unchecked(name), value)),
            );
        }
        TreeKey::Chunk(ino, index) => {
            let raw = replies.list(key)?;
            let slices: Result<Vec<Vec<Slice>>> =
                raw.iter().map(|raw| chunk::decode(raw)).collect();
            let slices = reply::at(key, slices.map(|slices| slices.concat()));
            if !raw.is_empty() {
                page.add(slices.map(|slices| Stored::Chunk(ino, index, slices)));
            }
        }
    }
    Ok(())
}
