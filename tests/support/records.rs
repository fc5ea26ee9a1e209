//! Reading and writing records directly in the store, without operations.

use jfs::meta::engine::{Change, Key, Record};
use jfs::meta::record::{Attr, FileKind};
use jfs::meta::{Ino, Meta, Timestamp};

/// Writes a node without an entry.
pub async fn put_node(meta: &Meta, ino: Ino, attr: &Attr) {
    let changes = [Change::PutAttr(ino, attr.clone())];
    meta.engine().begin().commit(&changes).await.unwrap();
}

/// Returns the attributes of a file of user 1000 and group 1000.
pub fn file(mode: u16) -> Attr {
    Attr::new(FileKind::File, mode, 1000, 1000, Ino::ROOT, Timestamp::from_secs(1_000_000))
}

/// Returns the attributes of a directory of user 1000 and group 1000.
pub fn dir(mode: u16) -> Attr {
    Attr::new(FileKind::Dir, mode, 1000, 1000, Ino::ROOT, Timestamp::from_secs(1_000_000))
}

pub async fn stored(meta: &Meta, key: Key) -> Record {
    meta.engine().read(&[key]).await.unwrap().pop().unwrap()
}

pub async fn stored_attr(meta: &Meta, ino: Ino) -> Attr {
    match stored(meta, Key::Attr(ino)).await {
        Record::Attr(Some(attr)) => attr,
        other => panic!("{ino}: {other:?}"),
    }
}

/// Returns the operations in the change log, `OP(args)[:result]`, oldest first.
pub async fn log(meta: &Meta) -> Vec<String> {
    let lines = meta.engine().change_log(0, 1000).await.unwrap();
    lines.iter().map(|(_, line)| line.split('|').nth(1).unwrap().to_owned()).collect()
}
