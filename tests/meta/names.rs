//! Operations on names, each behaviour once, on every engine.

use crate::support::tree::{Tree, name, refused};
use crate::support::volume::{Volume, setting};
use jfs::Error;
use jfs::meta::record::FileKind;
use jfs::meta::record::attr::flag;
use jfs::meta::{AttrSet, Caller, Ino, Name, NodeKind, RenameMode, TimeSet, Timestamp};

crate::on_every_engine! { super::setting();
    a_new_file_is_found_by_its_name,
    a_missing_name_is_not_found,
    creating_an_existing_name_exclusively_fails,
    creating_an_existing_name_opens_the_file,
    creating_over_a_directory_fails,
    creating_in_a_file_fails,
    creating_in_a_missing_directory_fails,
    a_new_directory_adds_a_link_to_its_parent,
    a_new_file_adds_no_link_to_its_parent,
    a_new_node_gets_the_callers_owner_and_the_masked_mode,
    new_nodes_inherit_the_group_of_a_setgid_directory,
    a_device_keeps_its_number,
    adding_to_an_immutable_directory_fails,
    a_symlink_reads_back_its_target,
    readlink_of_a_file_is_invalid,
    bad_symlink_targets_are_invalid,
    a_second_name_increments_the_link_count_and_clears_the_parent,
    directories_cannot_be_linked,
    linking_to_an_existing_name_fails,
    unlink_decrements_the_link_count_until_the_node_is_gone,
    unlink_of_a_directory_is_not_permitted,
    unlink_of_a_missing_name_is_not_found,
    unlink_of_an_open_file_keeps_it_until_it_is_closed,
    an_append_only_file_cannot_be_unlinked,
    only_owners_remove_from_a_sticky_directory,
    rmdir_removes_an_empty_directory_and_its_link,
    rmdir_of_a_full_directory_fails,
    rmdir_of_a_file_fails,
    rename_moves_a_file,
    rename_of_a_directory_moves_its_link,
    rename_over_a_file_replaces_it,
    rename_over_an_empty_directory_replaces_it,
    rename_over_a_full_directory_fails,
    rename_of_a_directory_over_a_file_fails,
    rename_of_a_file_over_a_directory_fails,
    rename_onto_itself_changes_nothing,
    rename_onto_another_name_of_the_same_node_changes_nothing,
    rename_without_replacing_fails_for_an_existing_name,
    exchange_swaps_two_names,
    exchange_of_a_file_and_a_directory_moves_the_link,
    exchange_with_a_missing_name_is_not_found,
    a_directory_cannot_move_below_itself,
    a_directory_cannot_move_deep_below_itself,
    rename_of_a_hard_link_keeps_both_names,
    chmod_changes_mode_and_ctime,
    chmod_by_another_user_is_not_permitted,
    chown_clears_setuid,
    times_can_be_set_and_set_to_now,
    a_listing_has_every_name_once,
    a_listing_with_attrs_has_every_attr,
    names_may_be_any_bytes_up_to_255,
    names_with_slash_or_too_long_are_refused,
    the_trash_name_is_reserved_in_the_root,
    a_tree_is_removed_with_everything_below_it,
    entries_survive_many_pages,
}

async fn a_new_file_is_found_by_its_name(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let (found, attr) = vol.meta.at("f").await.expect("lookup");
    assert_eq!(found, ino);
    assert_eq!((attr.kind, attr.nlink, attr.length), (FileKind::File, 1, 0));
    assert_eq!(attr.parent, Ino::ROOT);
}

async fn a_missing_name_is_not_found(vol: Volume) {
    assert!(matches!(refused(vol.meta.at("nothing").await), Error::NotFound));
}

async fn creating_an_existing_name_exclusively_fails(vol: Volume) {
    vol.meta.file("f").await;
    let again = vol.meta.file_by(&Caller::root(), "f", 0o644).await;
    assert!(matches!(refused(again), Error::Exists));
}

async fn creating_an_existing_name_opens_the_file(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let root = Caller::root();
    let (again, _) =
        vol.meta.create(&root, Ino::ROOT, &name("f"), 0o600, 0, false).await.expect("create");
    assert_eq!(again, ino);
    vol.meta.close_file(ino).await.expect("close");
}

async fn creating_over_a_directory_fails(vol: Volume) {
    vol.meta.dir("d").await;
    let made = vol.meta.create(&Caller::root(), Ino::ROOT, &name("d"), 0o600, 0, false).await;
    assert!(matches!(refused(made), Error::Exists));
}

async fn creating_in_a_file_fails(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let made = vol.meta.mkdir(&Caller::root(), ino, &name("d"), 0o755, 0).await;
    assert!(matches!(refused(made), Error::NotDirectory));
}

async fn creating_in_a_missing_directory_fails(vol: Volume) {
    let made = vol.meta.mkdir(&Caller::root(), Ino(4_000_000), &name("d"), 0o755, 0).await;
    assert!(matches!(refused(made), Error::NotFound));
}

async fn a_new_directory_adds_a_link_to_its_parent(vol: Volume) {
    vol.meta.dir("a").await;
    vol.meta.dir("a/b").await;
    assert_eq!(vol.meta.attr("a").await.nlink, 3);
    assert_eq!(vol.meta.attr("a/b").await.nlink, 2);
    assert_eq!(vol.meta.attr("a/b").await.length, 4096);
}

async fn a_new_file_adds_no_link_to_its_parent(vol: Volume) {
    vol.meta.dir("a").await;
    vol.meta.file("a/f").await;
    assert_eq!(vol.meta.attr("a").await.nlink, 2);
}

async fn a_new_node_gets_the_callers_owner_and_the_masked_mode(vol: Volume) {
    let caller = Caller::user(1000, 100);
    vol.meta.mkdir(&caller, Ino::ROOT, &name("d"), 0o777, 0o022).await.expect("mkdir");
    let attr = vol.meta.attr("d").await;
    assert_eq!((attr.uid, attr.gid, attr.mode), (1000, 100, 0o755));
}

async fn new_nodes_inherit_the_group_of_a_setgid_directory(vol: Volume) {
    let owner = Caller::user(1, 50);
    vol.meta.dir_by(&owner, "d", 0o2777).await.expect("mkdir");
    let other = Caller::user(2, 60);
    vol.meta.dir_by(&other, "d/sub", 0o755).await.expect("mkdir");
    vol.meta.file_by(&other, "d/file", 0o644).await.expect("create");
    let (sub, file) = (vol.meta.attr("d/sub").await, vol.meta.attr("d/file").await);
    assert_eq!((sub.gid, sub.mode), (50, 0o2755));
    assert_eq!((file.gid, file.mode), (50, 0o644));
}

async fn a_device_keeps_its_number(vol: Volume) {
    let node = NodeKind { kind: FileKind::CharDevice, rdev: 0x0103 };
    let root = Caller::root();
    vol.meta.mknod(&root, Ino::ROOT, &name("null"), node, 0o666, 0).await.expect("mknod");
    let attr = vol.meta.attr("null").await;
    assert_eq!((attr.kind, attr.rdev), (FileKind::CharDevice, 0x0103));
}

async fn adding_to_an_immutable_directory_fails(vol: Volume) {
    let ino = vol.meta.dir("d").await;
    let set = AttrSet { flags: Some(flag::IMMUTABLE), ..AttrSet::default() };
    vol.meta.setattr(&Caller::root(), ino, set).await.expect("setattr");
    let made = vol.meta.file_by(&Caller::root(), "d/f", 0o644).await;
    assert!(matches!(refused(made), Error::NotPermitted));
}

async fn a_symlink_reads_back_its_target(vol: Volume) {
    let ino = vol.meta.point("l", "some/where").await;
    assert_eq!(vol.meta.readlink(ino).await.expect("readlink"), "some/where");
    assert_eq!(vol.meta.attr("l").await.length, 10);
    vol.meta.rm("l").await.expect("unlink");
    assert!(matches!(refused(vol.meta.readlink(ino).await), Error::NotFound));
}

async fn readlink_of_a_file_is_invalid(vol: Volume) {
    let ino = vol.meta.file("f").await;
    assert!(matches!(refused(vol.meta.readlink(ino).await), Error::Invalid));
}

async fn bad_symlink_targets_are_invalid(vol: Volume) {
    for target in [Vec::new(), vec![b'x'; 4097], b"a\0b".to_vec()] {
        let made = vol.meta.symlink(&Caller::root(), Ino::ROOT, &name("l"), target.into()).await;
        assert!(matches!(refused(made), Error::Invalid));
    }
}

async fn a_second_name_increments_the_link_count_and_clears_the_parent(vol: Volume) {
    vol.meta.file("f").await;
    vol.meta.dir("d").await;
    vol.meta.hard_link("f", "d/g").await.expect("link");
    let attr = vol.meta.attr("f").await;
    assert_eq!((attr.nlink, attr.parent), (2, Ino::NONE));
    assert_eq!(vol.meta.ino("f").await, vol.meta.ino("d/g").await);
}

async fn directories_cannot_be_linked(vol: Volume) {
    vol.meta.dir("d").await;
    assert!(matches!(refused(vol.meta.hard_link("d", "e").await), Error::NotPermitted));
}

async fn linking_to_an_existing_name_fails(vol: Volume) {
    vol.meta.file("f").await;
    vol.meta.file("g").await;
    assert!(matches!(refused(vol.meta.hard_link("f", "g").await), Error::Exists));
}

async fn unlink_decrements_the_link_count_until_the_node_is_gone(vol: Volume) {
    let ino = vol.meta.file("f").await;
    vol.meta.hard_link("f", "g").await.expect("link");
    vol.meta.rm("f").await.expect("unlink");
    assert_eq!(vol.meta.attr("g").await.nlink, 1);
    vol.meta.rm("g").await.expect("unlink");
    assert!(matches!(refused(vol.meta.getattr(ino).await), Error::NotFound));
}

async fn unlink_of_a_directory_is_not_permitted(vol: Volume) {
    vol.meta.dir("d").await;
    assert!(matches!(refused(vol.meta.rm("d").await), Error::NotPermitted));
}

async fn unlink_of_a_missing_name_is_not_found(vol: Volume) {
    assert!(matches!(refused(vol.meta.rm("f").await), Error::NotFound));
}

async fn unlink_of_an_open_file_keeps_it_until_it_is_closed(vol: Volume) {
    let root = Caller::root();
    let (ino, _) =
        vol.meta.create(&root, Ino::ROOT, &name("f"), 0o600, 0, true).await.expect("create");
    vol.meta.rm("f").await.expect("unlink");
    assert_eq!(vol.meta.getattr(ino).await.expect("still there").nlink, 0);
    vol.meta.close_file(ino).await.expect("close");
    assert!(matches!(refused(vol.meta.getattr(ino).await), Error::NotFound));
}

async fn an_append_only_file_cannot_be_unlinked(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let set = AttrSet { flags: Some(flag::APPEND), ..AttrSet::default() };
    vol.meta.setattr(&Caller::root(), ino, set).await.expect("setattr");
    assert!(matches!(refused(vol.meta.rm("f").await), Error::NotPermitted));
}

async fn only_owners_remove_from_a_sticky_directory(vol: Volume) {
    vol.meta.dir_by(&Caller::user(1, 1), "tmp", 0o1777).await.expect("mkdir");
    for path in ["tmp/a", "tmp/b", "tmp/c"] {
        vol.meta.file_by(&Caller::user(2, 2), path, 0o644).await.expect("create");
    }
    let stranger = vol.meta.rm_by(&Caller::user(3, 3), "tmp/a").await;
    assert!(matches!(refused(stranger), Error::AccessDenied));
    vol.meta.rm_by(&Caller::user(2, 2), "tmp/a").await.expect("the file's owner may");
    vol.meta.rm_by(&Caller::user(1, 1), "tmp/b").await.expect("the directory's owner may");
    vol.meta.rm_by(&Caller::root(), "tmp/c").await.expect("root may");
}

async fn rmdir_removes_an_empty_directory_and_its_link(vol: Volume) {
    vol.meta.dir("a").await;
    vol.meta.dir("a/b").await;
    vol.meta.rm_dir("a/b").await.expect("rmdir");
    assert_eq!(vol.meta.attr("a").await.nlink, 2);
    assert!(vol.meta.names("a").await.is_empty());
}

async fn rmdir_of_a_full_directory_fails(vol: Volume) {
    vol.meta.dir("a").await;
    vol.meta.file("a/f").await;
    assert!(matches!(refused(vol.meta.rm_dir("a").await), Error::NotEmpty));
}

async fn rmdir_of_a_file_fails(vol: Volume) {
    vol.meta.file("f").await;
    assert!(matches!(refused(vol.meta.rm_dir("f").await), Error::NotDirectory));
}

async fn rename_moves_a_file(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let dir = vol.meta.dir("d").await;
    vol.meta.mv("f", "d/g").await.expect("rename");
    assert_eq!(vol.meta.ino("d/g").await, ino);
    assert_eq!(vol.meta.attr("d/g").await.parent, dir);
    assert_eq!(vol.meta.names("").await, ["d"]);
}

async fn rename_of_a_directory_moves_its_link(vol: Volume) {
    vol.meta.dir("a").await;
    vol.meta.dir("a/x").await;
    let to = vol.meta.dir("b").await;
    vol.meta.mv("a/x", "b/x").await.expect("rename");
    assert_eq!((vol.meta.attr("a").await.nlink, vol.meta.attr("b").await.nlink), (2, 3));
    assert_eq!(vol.meta.attr("b/x").await.parent, to);
}

async fn rename_over_a_file_replaces_it(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let gone = vol.meta.file("g").await;
    vol.meta.mv("f", "g").await.expect("rename");
    assert_eq!(vol.meta.ino("g").await, ino);
    assert!(matches!(refused(vol.meta.getattr(gone).await), Error::NotFound));
    assert_eq!(vol.meta.names("").await, ["g"]);
}

async fn rename_over_an_empty_directory_replaces_it(vol: Volume) {
    let ino = vol.meta.dir("a").await;
    vol.meta.dir("b").await;
    vol.meta.mv("a", "b").await.expect("rename");
    assert_eq!(vol.meta.ino("b").await, ino);
    assert_eq!(vol.meta.attr("").await.nlink, 3);
}

async fn rename_over_a_full_directory_fails(vol: Volume) {
    vol.meta.dir("a").await;
    vol.meta.dir("b").await;
    vol.meta.file("b/f").await;
    assert!(matches!(refused(vol.meta.mv("a", "b").await), Error::NotEmpty));
}

async fn rename_of_a_directory_over_a_file_fails(vol: Volume) {
    vol.meta.dir("a").await;
    vol.meta.file("f").await;
    assert!(matches!(refused(vol.meta.mv("a", "f").await), Error::NotDirectory));
}

async fn rename_of_a_file_over_a_directory_fails(vol: Volume) {
    vol.meta.dir("a").await;
    vol.meta.file("f").await;
    assert!(matches!(refused(vol.meta.mv("f", "a").await), Error::IsDirectory));
}

async fn rename_onto_itself_changes_nothing(vol: Volume) {
    vol.meta.file("f").await;
    let before = vol.meta.attr("f").await;
    vol.meta.mv("f", "f").await.expect("rename");
    assert_eq!(vol.meta.attr("f").await, before);
}

async fn rename_onto_another_name_of_the_same_node_changes_nothing(vol: Volume) {
    vol.meta.file("f").await;
    vol.meta.hard_link("f", "g").await.expect("link");
    vol.meta.mv("f", "g").await.expect("rename");
    assert_eq!(vol.meta.names("").await, ["f", "g"]);
    assert_eq!(vol.meta.attr("f").await.nlink, 2);
}

async fn rename_without_replacing_fails_for_an_existing_name(vol: Volume) {
    vol.meta.file("f").await;
    vol.meta.file("g").await;
    let root = Caller::root();
    let taken = vol.meta.mv_as(&root, "f", "g", RenameMode::NoReplace).await;
    assert!(matches!(refused(taken), Error::Exists));
    vol.meta.mv_as(&root, "f", "h", RenameMode::NoReplace).await.expect("a free name");
}

async fn exchange_swaps_two_names(vol: Volume) {
    let (one, two) = (vol.meta.file("f").await, vol.meta.file("g").await);
    vol.meta.mv_as(&Caller::root(), "f", "g", RenameMode::Exchange).await.expect("exchange");
    assert_eq!((vol.meta.ino("f").await, vol.meta.ino("g").await), (two, one));
}

async fn exchange_of_a_file_and_a_directory_moves_the_link(vol: Volume) {
    let a = vol.meta.dir("a").await;
    let b = vol.meta.dir("b").await;
    let file = vol.meta.file("a/f").await;
    let dir = vol.meta.dir("b/d").await;
    vol.meta.mv_as(&Caller::root(), "a/f", "b/d", RenameMode::Exchange).await.expect("exchange");
    assert_eq!((vol.meta.ino("a/f").await, vol.meta.ino("b/d").await), (dir, file));
    assert_eq!((vol.meta.attr("a").await.nlink, vol.meta.attr("b").await.nlink), (3, 2));
    assert_eq!((vol.meta.attr("a/f").await.parent, vol.meta.attr("b/d").await.parent), (a, b));
}

async fn exchange_with_a_missing_name_is_not_found(vol: Volume) {
    vol.meta.file("f").await;
    let swapped = vol.meta.mv_as(&Caller::root(), "f", "g", RenameMode::Exchange).await;
    assert!(matches!(refused(swapped), Error::NotFound));
}

async fn a_directory_cannot_move_below_itself(vol: Volume) {
    vol.meta.dir("a").await;
    vol.meta.dir("a/b").await;
    assert!(matches!(refused(vol.meta.mv("a", "a/b/c").await), Error::NotPermitted));
    assert!(matches!(refused(vol.meta.mv("a", "a/c").await), Error::NotPermitted));
}

async fn a_directory_cannot_move_deep_below_itself(vol: Volume) {
    for path in ["a", "a/b", "a/b/c", "a/b/c/d"] {
        vol.meta.dir(path).await;
    }
    assert!(matches!(refused(vol.meta.mv("a", "a/b/c/d/e").await), Error::Invalid));
}

async fn rename_of_a_hard_link_keeps_both_names(vol: Volume) {
    vol.meta.file("f").await;
    vol.meta.dir("d").await;
    vol.meta.hard_link("f", "g").await.expect("link");
    vol.meta.mv("g", "d/g").await.expect("rename");
    assert_eq!(vol.meta.ino("f").await, vol.meta.ino("d/g").await);
    vol.meta.rm("d/g").await.expect("unlink");
    assert_eq!(vol.meta.attr("f").await.nlink, 1);
}

async fn chmod_changes_mode_and_ctime(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let before = vol.meta.attr("f").await;
    let set = AttrSet { mode: Some(0o600), ..AttrSet::default() };
    vol.meta.setattr(&Caller::root(), ino, set).await.expect("setattr");
    let after = vol.meta.attr("f").await;
    assert_eq!(after.mode, 0o600);
    assert!(after.ctime > before.ctime);
    assert_eq!(after.mtime, before.mtime);
}

async fn chmod_by_another_user_is_not_permitted(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let set = AttrSet { mode: Some(0o777), ..AttrSet::default() };
    let changed = vol.meta.setattr(&Caller::user(5, 5), ino, set).await;
    assert!(matches!(refused(changed), Error::NotPermitted));
}

async fn chown_clears_setuid(vol: Volume) {
    let ino = vol.meta.file_by(&Caller::root(), "f", 0o4755).await.expect("create");
    let set = AttrSet { uid: Some(7), ..AttrSet::default() };
    let attr = vol.meta.setattr(&Caller::root(), ino, set).await.expect("setattr");
    assert_eq!((attr.uid, attr.mode), (7, 0o755));
}

async fn times_can_be_set_and_set_to_now(vol: Volume) {
    let ino = vol.meta.file("f").await;
    let past = Timestamp { sec: 1_000_000, nsec: 123_456_789 };
    let set = AttrSet {
        atime: Some(TimeSet::At(past)),
        mtime: Some(TimeSet::At(past)),
        ..AttrSet::default()
    };
    vol.meta.setattr(&Caller::root(), ino, set).await.expect("setattr");
    let attr = vol.meta.attr("f").await;
    assert_eq!((attr.atime, attr.mtime), (past, past));
    let set = AttrSet { mtime: Some(TimeSet::Now), ..AttrSet::default() };
    vol.meta.setattr(&Caller::root(), ino, set).await.expect("setattr");
    let attr = vol.meta.attr("f").await;
    assert_eq!(attr.atime, past);
    assert!(attr.mtime > past);
}

async fn a_listing_has_every_name_once(vol: Volume) {
    vol.meta.dir("d").await;
    for path in ["d/a", "d/b", "d/c"] {
        vol.meta.file(path).await;
    }
    assert_eq!(vol.meta.names("d").await, ["a", "b", "c"]);
    assert_eq!(vol.meta.names("").await, ["d"]);
}

async fn a_listing_with_attrs_has_every_attr(vol: Volume) {
    vol.meta.dir("d").await;
    vol.meta.file("d/f").await;
    vol.meta.dir("d/sub").await;
    let dir = vol.meta.ino("d").await;
    for entry in vol.meta.entries(dir, true).await.expect("listing") {
        let (ino, attr) = vol.meta.at(&format!("d/{}", entry.name)).await.expect("lookup");
        assert_eq!((entry.ino, entry.attr), (ino, Some(attr)));
    }
}

async fn names_may_be_any_bytes_up_to_255(vol: Volume) {
    let every: Vec<u8> = (1..=255u8).filter(|byte| *byte != b'/').collect();
    let long = vec![0xFF; 255];
    for bytes in [every, long, "ü".as_bytes().to_vec(), b"%2F\"\\".to_vec()] {
        let name = Name::new(&bytes).expect("a valid name");
        let made = vol.meta.mkdir(&Caller::root(), Ino::ROOT, &name, 0o755, 0).await;
        let (ino, _) = made.expect("mkdir");
        let found = vol.meta.lookup(&Caller::root(), Ino::ROOT, &name).await.expect("lookup");
        assert_eq!(found.0, ino);
        let listed = vol.meta.entries(Ino::ROOT, false).await.expect("listing");
        assert!(listed.iter().any(|entry| entry.name == name));
    }
}

async fn names_with_slash_or_too_long_are_refused(_vol: Volume) {
    for bytes in ["a/b", "", ".", "..", "a\0"] {
        assert!(matches!(refused(Name::new(bytes)), Error::Invalid), "{bytes:?}");
    }
    assert!(matches!(refused(Name::new([b'x'; 256])), Error::NameTooLong));
}

async fn the_trash_name_is_reserved_in_the_root(vol: Volume) {
    let root = Caller::root();
    let trash = name(".trash");
    let made = vol.meta.mkdir(&root, Ino::ROOT, &trash, 0o755, 0).await;
    assert!(matches!(refused(made), Error::NotPermitted));
    assert!(matches!(refused(vol.meta.rmdir(&root, Ino::ROOT, &trash).await), Error::NotPermitted));
    vol.meta.dir("d").await;
    vol.meta.dir("d/.trash").await;
}

async fn a_tree_is_removed_with_everything_below_it(vol: Volume) {
    for path in ["t", "t/a", "t/a/b", "t/c"] {
        vol.meta.dir(path).await;
    }
    for path in ["t/f", "t/a/f", "t/a/b/f", "t/a/b/g"] {
        vol.meta.file(path).await;
    }
    vol.meta.hard_link("t/f", "t/c/f").await.expect("link");
    let removed = vol.meta.remove_tree(&Caller::root(), Ino::ROOT, &name("t"), true).await;
    assert_eq!(removed.expect("remove"), 9);
    assert!(vol.meta.names("").await.is_empty());
    assert_eq!(vol.meta.attr("").await.nlink, 2);
}

async fn entries_survive_many_pages(vol: Volume) {
    const COUNT: usize = 5000;
    let dir = vol.meta.dir("d").await;
    let root = Caller::root();
    futures::future::join_all((0..COUNT).map(|i| {
        let (meta, root) = (&vol.meta, &root);
        async move {
            let node = NodeKind { kind: FileKind::Fifo, rdev: 0 };
            meta.mknod(root, dir, &name(format!("{i}")), node, 0o600, 0).await.expect("mknod");
        }
    }))
    .await;
    let mut listed = vol.meta.names("d").await;
    listed.dedup();
    assert_eq!(listed.len(), COUNT);
}
