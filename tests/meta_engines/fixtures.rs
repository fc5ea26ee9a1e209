//! Sample records, and helpers to write and read them.

use jfs::meta::engine::{Change, CommitError, Engine, Found, Key, Record};
use jfs::meta::record::{Attr, Entry, FileKind, Flock, Plock, Slice, SliceSize};
use jfs::meta::{Ino, Name, SliceId, Timestamp};

/// Inodes for the bodies to use.
pub const DIR: Ino = Ino(2);
pub const FILE: Ino = Ino(3);
pub const OTHER: Ino = Ino(4);

/// An attr in which all fields differ, so that a test notices any that are mixed up.
pub fn attr(kind: FileKind) -> Attr {
    Attr {
        flags: 0x21,
        kind,
        mode: 0o7541,
        uid: 1001,
        gid: 1002,
        atime: Timestamp { sec: 1_700_000_001, nsec: 123_456_789 },
        mtime: Timestamp { sec: 1_700_000_002, nsec: 1 },
        ctime: Timestamp { sec: 1_700_000_003, nsec: 999_999_999 },
        nlink: 5,
        length: 1 << 40,
        rdev: 0x0801,
        parent: Ino(77),
        access_acl: 3,
        default_acl: 4,
        tier: 2,
    }
}

pub fn file() -> Attr {
    Attr::new(FileKind::File, 0o644, 1, 1, DIR, Timestamp::from_secs(1_700_000_000))
}

pub fn dir() -> Attr {
    Attr::new(FileKind::Dir, 0o755, 0, 0, Ino::ROOT, Timestamp::from_secs(1_700_000_000))
}

pub fn name(text: impl AsRef<[u8]>) -> Name {
    Name::new(text).expect("a good name")
}

pub fn entry(ino: Ino) -> Entry {
    Entry { kind: FileKind::File, ino }
}

/// A slice of 1000 bytes at the start of the chunk.
pub fn slice(id: u64) -> Slice {
    Slice { pos: 0, id: SliceId(id), size: 1000, off: 0, len: 1000 }
}

/// The id and size of the same slice.
pub fn sized(id: u64) -> SliceSize {
    SliceSize { id: SliceId(id), size: 1000 }
}

/// The changes of writing one slice.
pub fn written(ino: Ino, id: u64) -> [Change; 2] {
    [Change::NewSlice(sized(id)), append(ino, 0, vec![slice(id)])]
}

pub fn append(ino: Ino, index: u32, slices: Vec<Slice>) -> Change {
    Change::AppendSlices { ino, index, slices, if_present: false }
}

/// Commits without guards.
pub async fn commit(engine: &dyn Engine, changes: &[Change]) -> Vec<i64> {
    engine.begin().commit(changes).await.expect("commits")
}

#[track_caller]
pub fn assert_conflict(result: &Result<Vec<i64>, CommitError>) {
    assert!(matches!(result, Err(CommitError::Conflict)), "{result:?} instead of a conflict");
}

pub async fn read(engine: &dyn Engine, key: Key) -> Record {
    let mut records = engine.read(&[key]).await.expect("reads");
    assert_eq!(records.len(), 1);
    records.remove(0)
}

/// Defines functions that read one kind of record each.
macro_rules! readers {
    ($($reader:ident($($arg:ident: $type:ty),*): $kind:ident -> $output:ty;)*) => {
        $(pub async fn $reader(engine: &dyn Engine, $($arg: $type),*) -> $output {
            match read(engine, Key::$kind($($arg),*)).await {
                Record::$kind(record) => record,
                other => panic!("{other:?}"),
            }
        })*
    };
}

readers! {
    attr_of(ino: Ino): Attr -> Option<Attr>;
    entry_of(dir: Ino, name: Name): Entry -> Option<Entry>;
    lookup(dir: Ino, name: Name): Lookup -> Option<Found>;
    has_entries(dir: Ino): HasEntries -> bool;
    chunk(ino: Ino, index: u32): Chunk -> Vec<Slice>;
    symlink(ino: Ino): Symlink -> Option<bytes::Bytes>;
    xattr(ino: Ino, name: Name): Xattr -> Option<bytes::Bytes>;
    flocks(ino: Ino): Flocks -> Vec<Flock>;
    plocks(ino: Ino): Plocks -> Vec<Plock>;
    sustained(sid: jfs::meta::Sid, ino: Ino): Sustained -> bool;
    slice_refs(id: SliceId, size: u32): SliceRef -> i64;
    delayed_list(id: SliceId, at: i64): Delayed -> Vec<SliceSize>;
    dir_stat(ino: Ino): DirStat -> Option<jfs::meta::record::DirStat>;
    quota(key: jfs::meta::record::QuotaKey): Quota -> Option<jfs::meta::record::Quota>;
    acl(id: u32): Acl -> Option<jfs::meta::record::AclRule>;
}

/// Returns xattrs in sorted order, which engines do not guarantee.
pub async fn xattrs(engine: &dyn Engine, ino: Ino) -> Vec<(Name, bytes::Bytes)> {
    match read(engine, Key::Xattrs(ino)).await {
        Record::Xattrs(mut all) => {
            all.sort();
            all
        }
        other => panic!("{other:?}"),
    }
}

/// Returns parents in sorted order.
pub async fn parents(engine: &dyn Engine, ino: Ino) -> Vec<(Ino, i64)> {
    match read(engine, Key::Parents(ino)).await {
        Record::Parents(mut all) => {
            all.sort();
            all
        }
        other => panic!("{other:?}"),
    }
}
