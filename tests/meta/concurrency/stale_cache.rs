//! Cached nodes that another client has changed since: they may cost a round trip, but never change
//! a result.

use jfs::Error;
use jfs::meta::engine::{Key, Record};
use jfs::meta::record::Slice;
use jfs::meta::{AttrSet, Caller, Ino, Meta, Timestamp};

use crate::support::tree::{Tree, name};
use crate::support::volume::{Volume, setting};

crate::on_every_engine! { super::setting();
    creating_in_a_removed_directory_fails,
    a_name_created_by_another_client_is_found,
    a_mode_changed_by_another_client_is_obeyed,
    alternating_writes_of_two_clients_are_all_kept,
    an_attr_changed_by_another_client_is_not_lost,
}

async fn write(meta: &Meta, ino: Ino, pos: u32) {
    let id = meta.new_slice().await.expect("slice id");
    let slice = Slice { pos, id, size: 100, off: 0, len: 100 };
    meta.write(ino, 0, pos, slice, Timestamp::now()).await.expect("write");
}

async fn creating_in_a_removed_directory_fails(vol: Volume) {
    let other = vol.client().await;
    let dir = vol.meta.dir("d").await;
    vol.meta.file("d/f").await;
    other.rm("d/f").await.expect("unlink");
    other.rmdir(&Caller::root(), Ino::ROOT, &name("d")).await.expect("rmdir");
    let made = vol.meta.create(&Caller::root(), dir, &name("g"), 0o644, 0, true).await;
    assert!(matches!(made, Err(Error::NotFound)), "{made:?}");
}

async fn a_name_created_by_another_client_is_found(vol: Volume) {
    let other = vol.client().await;
    let root = Caller::root();
    vol.meta.file("warm").await;
    let taken = other.file("f").await;
    let made = vol.meta.create(&root, Ino::ROOT, &name("f"), 0o644, 0, true).await;
    assert!(matches!(made, Err(Error::Exists)), "{made:?}");
    let made = vol.meta.create(&root, Ino::ROOT, &name("f"), 0o644, 0, false).await;
    assert_eq!(made.expect("an open file").0, taken);
    let made = vol.meta.mkdir(&root, Ino::ROOT, &name("f"), 0o755, 0).await;
    assert!(matches!(made, Err(Error::Exists)), "{made:?}");
}

async fn a_mode_changed_by_another_client_is_obeyed(vol: Volume) {
    let other = vol.client().await;
    let user = Caller { check: true, ..Caller::user(1000, 1000) };
    let dir = vol.meta.dir("d").await;
    let chmod = async |mode| {
        let set = AttrSet { mode: Some(mode), ..AttrSet::default() };
        other.setattr(&Caller::root(), dir, set).await.expect("chmod");
    };
    chmod(0o777).await;
    vol.meta.create(&user, dir, &name("a"), 0o644, 0, true).await.expect("create");
    chmod(0o755).await;
    let made = vol.meta.create(&user, dir, &name("b"), 0o644, 0, true).await;
    assert!(matches!(made, Err(Error::AccessDenied)), "{made:?}");
    chmod(0o777).await;
    vol.meta.create(&user, dir, &name("b"), 0o644, 0, true).await.expect("create");
}

async fn alternating_writes_of_two_clients_are_all_kept(vol: Volume) {
    let other = vol.client().await;
    let ino = vol.meta.file("f").await;
    for turn in 0..4 {
        write(&vol.meta, ino, turn * 200).await;
        write(&other, ino, turn * 200 + 100).await;
    }
    let Some(Record::Chunk(slices)) =
        vol.meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk").pop()
    else {
        panic!("no chunk")
    };
    assert_eq!(slices.len(), 8);
    assert_eq!(other.getattr(ino).await.expect("getattr").length, 800);
}

async fn an_attr_changed_by_another_client_is_not_lost(vol: Volume) {
    let other = vol.client().await;
    let ino = vol.meta.file("f").await;
    write(&vol.meta, ino, 0).await;
    write(&other, ino, 100).await;
    let set = AttrSet { mode: Some(0o600), ..AttrSet::default() };
    let attr = vol.meta.setattr(&Caller::root(), ino, set).await.expect("chmod");
    assert_eq!((attr.length, attr.mode), (200, 0o600));
    let set = AttrSet { mode: Some(0o600), ..AttrSet::default() };
    let attr = vol.meta.setattr(&Caller::root(), ino, set).await.expect("chmod");
    assert_eq!(attr, other.getattr(ino).await.expect("getattr"));
}
