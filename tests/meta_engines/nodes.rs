//! Attrs, entries, lookups, symlinks, xattrs and parents: reading what was written.

use bytes::Bytes;
use jfs::meta::engine::{Change, Found, Key, Record};
use jfs::meta::record::{Attr, Entry, FileKind};
use jfs::meta::{Ino, Timestamp};

use crate::fixtures::*;

const KINDS: [FileKind; 7] = [
    FileKind::File,
    FileKind::Dir,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::BlockDevice,
    FileKind::CharDevice,
    FileKind::Socket,
];

on_every_engine! {
    async fn an_attr_keeps_every_field(store) {
        let engine = store.engine.as_ref();
        for kind in KINDS {
            commit(engine, &[Change::PutAttr(FILE, attr(kind))]).await;
            assert_eq!(attr_of(engine, FILE).await, Some(attr(kind)));
        }
    }

    async fn an_attr_keeps_extreme_numbers(store) {
        let engine = store.engine.as_ref();
        let extreme = Attr {
            flags: u8::MAX,
            mode: 0o7777,
            uid: u32::MAX,
            gid: u32::MAX,
            atime: Timestamp { sec: -1, nsec: 0 },
            mtime: Timestamp { sec: 0, nsec: 0 },
            nlink: u32::MAX,
            length: 1 << 57,
            rdev: u32::MAX,
            parent: Ino(Ino::TRASH.0 + 1),
            access_acl: 0,
            default_acl: u32::MAX,
            tier: u8::MAX,
            ..attr(FileKind::File)
        };
        commit(engine, &[Change::PutAttr(Ino(u64::MAX >> 1), extreme.clone())]).await;
        assert_eq!(attr_of(engine, Ino(u64::MAX >> 1)).await, Some(extreme));
    }

    async fn an_attr_put_again_is_replaced_as_a_whole(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutAttr(FILE, attr(FileKind::File))]).await;
        commit(engine, &[Change::PutAttr(FILE, file())]).await;
        assert_eq!(attr_of(engine, FILE).await, Some(file()));
    }

    async fn a_removed_attr_is_gone_and_may_be_removed_again(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutAttr(FILE, file()), Change::PutAttr(OTHER, file())]).await;
        commit(engine, &[Change::RemoveAttr(FILE)]).await;
        commit(engine, &[Change::RemoveAttr(FILE)]).await;
        assert_eq!(attr_of(engine, FILE).await, None);
        assert_eq!(attr_of(engine, OTHER).await, Some(file()));
    }

    async fn a_place_is_read_as_its_attr(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutAttr(DIR, attr(FileKind::Dir))]).await;
        let records = engine.read(&[Key::Place(DIR), Key::Place(FILE)]).await.expect("reads");
        assert_eq!(records, [Record::Attr(Some(attr(FileKind::Dir))), Record::Attr(None)]);
    }

    async fn touching_a_directory_changes_links_and_times_only(store) {
        let engine = store.engine.as_ref();
        let old = attr(FileKind::Dir);
        commit(engine, &[Change::PutAttr(DIR, old.clone())]).await;
        let later = Timestamp { sec: 1_800_000_000, nsec: 123_456_789 };
        commit(engine, &[Change::TouchDir { ino: DIR, links: 2, at: Some(later) }]).await;
        commit(engine, &[Change::TouchDir { ino: DIR, links: -1, at: None }]).await;
        let touched = Attr { nlink: old.nlink + 1, mtime: later, ctime: later, ..old };
        assert_eq!(attr_of(engine, DIR).await, Some(touched));
    }

    /// Down to nanoseconds, and mtime and ctime independently.
    async fn touching_a_directory_never_moves_its_times_back(store) {
        let engine = store.engine.as_ref();
        let at = |sec, nsec| Timestamp { sec, nsec };
        let old = Attr { mtime: at(100, 5_000), ctime: at(100, 7_000), ..attr(FileKind::Dir) };
        commit(engine, &[Change::PutAttr(DIR, old.clone())]).await;
        let between = Change::TouchDir { ino: DIR, links: 0, at: Some(at(100, 6_001)) };
        commit(engine, &[between]).await;
        let touched = Attr { mtime: at(100, 6_001), ..old };
        assert_eq!(attr_of(engine, DIR).await, Some(touched.clone()));
        commit(engine, &[Change::TouchDir { ino: DIR, links: 0, at: Some(at(99, 9)) }]).await;
        assert_eq!(attr_of(engine, DIR).await, Some(touched));
    }

    async fn touches_of_one_directory_in_one_commit_add_up(store) {
        let engine = store.engine.as_ref();
        let new = Attr { nlink: 2, ..dir() };
        let changes = [
            Change::PutAttr(DIR, new.clone()),
            Change::TouchDir { ino: DIR, links: 1, at: None },
            Change::TouchDir { ino: DIR, links: 1, at: None },
        ];
        commit(engine, &changes).await;
        assert_eq!(attr_of(engine, DIR).await, Some(Attr { nlink: 4, ..new }));
    }

    async fn an_entry_keeps_its_kind_and_inode(store) {
        let engine = store.engine.as_ref();
        for kind in KINDS {
            let entry = Entry { kind, ino: Ino(Ino::TRASH.0 + 7) };
            commit(engine, &[Change::PutEntry(DIR, name("a"), entry)]).await;
            assert_eq!(entry_of(engine, DIR, name("a")).await, Some(entry));
        }
    }

    async fn names_are_bytes(store) {
        let engine = store.engine.as_ref();
        let names = [
            b"\xff\xfe".to_vec(),
            b"%_'\"\\".to_vec(),
            vec![b'n'; 255],
            b"A".to_vec(),
            b"a".to_vec(),
        ];
        for (ino, raw) in (10..).zip(&names) {
            commit(engine, &[Change::PutEntry(DIR, name(raw), entry(Ino(ino)))]).await;
        }
        for (ino, raw) in (10..).zip(&names) {
            assert_eq!(entry_of(engine, DIR, name(raw)).await, Some(entry(Ino(ino))), "{raw:?}");
        }
    }

    async fn a_removed_entry_is_gone_and_may_be_removed_again(store) {
        let engine = store.engine.as_ref();
        let both = ["a", "b"].map(|text| Change::PutEntry(DIR, name(text), entry(FILE)));
        commit(engine, &both).await;
        commit(engine, &[Change::RemoveEntry(DIR, name("a"))]).await;
        commit(engine, &[Change::RemoveEntry(DIR, name("a"))]).await;
        assert_eq!(entry_of(engine, DIR, name("a")).await, None);
        assert_eq!(entry_of(engine, DIR, name("b")).await, Some(entry(FILE)));
    }

    async fn a_directory_has_entries_until_the_last_is_removed(store) {
        let engine = store.engine.as_ref();
        assert!(!has_entries(engine, DIR).await);
        commit(engine, &[Change::PutEntry(DIR, name("a"), entry(FILE))]).await;
        assert!(has_entries(engine, DIR).await);
        assert!(!has_entries(engine, OTHER).await);
        commit(engine, &[Change::RemoveEntry(DIR, name("a"))]).await;
        assert!(!has_entries(engine, DIR).await);
    }

    async fn a_lookup_finds_the_entry_and_its_attr(store) {
        let engine = store.engine.as_ref();
        let there = [
            Change::PutEntry(DIR, name("a"), entry(FILE)),
            Change::PutAttr(FILE, attr(FileKind::File)),
        ];
        commit(engine, &there).await;
        let found = Found { entry: entry(FILE), attr: Some(attr(FileKind::File)) };
        assert_eq!(lookup(engine, DIR, name("a")).await, Some(found));
        assert_eq!(lookup(engine, DIR, name("b")).await, None);
    }

    async fn a_lookup_of_trash_inodes_finds_them(store) {
        let engine = store.engine.as_ref();
        let hour = Ino(Ino::TRASH.0 + 1);
        let there = [
            Change::PutEntry(
                Ino::TRASH,
                name("2026-11-16-00"),
                Entry { kind: FileKind::Dir, ino: hour },
            ),
            Change::PutAttr(hour, dir()),
        ];
        commit(engine, &there).await;
        let found = lookup(engine, Ino::TRASH, name("2026-11-16-00")).await.expect("exists");
        assert_eq!((found.entry.ino, found.attr), (hour, Some(dir())));
    }

    async fn a_lookup_of_an_entry_without_a_node_has_no_attr(store) {
        let engine = store.engine.as_ref();
        commit(engine, &[Change::PutEntry(DIR, name("a"), entry(FILE))]).await;
        let found = lookup(engine, DIR, name("a")).await;
        let bare = Found { entry: entry(FILE), attr: None };
        assert!(
            found.as_ref() == Some(&bare)
                || (engine.properties().entry_needs_node && found.is_none()),
            "{found:?}"
        );
    }

    async fn a_symlink_is_written_and_removed(store) {
        let engine = store.engine.as_ref();
        let target = Bytes::from(vec![b'\xfe'; 4095]);
        commit(engine, &[Change::PutSymlink(FILE, target.clone())]).await;
        assert_eq!(symlink(engine, FILE).await, Some(target));
        commit(engine, &[Change::RemoveSymlink(FILE)]).await;
        commit(engine, &[Change::RemoveSymlink(FILE)]).await;
        assert_eq!(symlink(engine, FILE).await, None);
    }

    async fn an_xattr_is_written_replaced_and_removed(store) {
        let engine = store.engine.as_ref();
        let put = |value: &'static [u8]| {
            Change::PutXattr(FILE, name("user.k"), Bytes::from_static(value))
        };
        commit(engine, &[put(b"one")]).await;
        commit(engine, &[put(b"\0\xff two")]).await;
        assert_eq!(
            xattr(engine, FILE, name("user.k")).await,
            Some(Bytes::from_static(b"\0\xff two"))
        );
        assert_eq!(xattr(engine, FILE, name("user.K")).await, None);
        commit(engine, &[Change::RemoveXattr(FILE, name("user.k"))]).await;
        commit(engine, &[Change::RemoveXattr(FILE, name("user.k"))]).await;
        assert_eq!(xattr(engine, FILE, name("user.k")).await, None);
    }

    async fn an_empty_xattr_exists_on_engines_that_support_it(store) {
        let engine = store.engine.as_ref();
        if engine.properties().refuses_empty_xattr {
            return;
        }
        commit(engine, &[Change::PutXattr(FILE, name("user.k"), Bytes::new())]).await;
        assert_eq!(xattr(engine, FILE, name("user.k")).await, Some(Bytes::new()));
    }

    async fn all_xattrs_of_a_node_are_listed_and_removed_at_once(store) {
        let engine = store.engine.as_ref();
        let put = |ino, key| Change::PutXattr(ino, name(key), Bytes::from_static(b"v"));
        commit(engine, &[put(FILE, "user.a"), put(FILE, "user.b"), put(OTHER, "user.c")]).await;
        let value = Bytes::from_static(b"v");
        assert_eq!(
            xattrs(engine, FILE).await,
            [(name("user.a"), value.clone()), (name("user.b"), value.clone())]
        );
        commit(engine, &[Change::RemoveXattrs(FILE)]).await;
        assert_eq!(xattrs(engine, FILE).await, []);
        assert_eq!(xattrs(engine, OTHER).await, [(name("user.c"), value)]);
    }

    /// Engines that derive parents from entries return the same as those with parent records.
    async fn parents_are_counted_by_entry(store) {
        let engine = store.engine.as_ref();
        let link = |dir, text| {
            [
                Change::PutEntry(dir, name(text), entry(FILE)),
                Change::AddParent { ino: FILE, parent: dir, count: 1 },
            ]
        };
        let linked = [link(DIR, "a"), link(DIR, "b"), link(OTHER, "c")].concat();
        commit(engine, &linked).await;
        assert_eq!(parents(engine, FILE).await, [(DIR, 2), (OTHER, 1)]);

        let unlink = |dir, text| {
            [
                Change::RemoveEntry(dir, name(text)),
                Change::AddParent { ino: FILE, parent: dir, count: -1 },
            ]
        };
        commit(engine, &unlink(OTHER, "c")).await;
        assert_eq!(parents(engine, FILE).await, [(DIR, 2)]);

        let mut last = [unlink(DIR, "a"), unlink(DIR, "b")].concat();
        last.push(Change::RemoveParents(FILE));
        commit(engine, &last).await;
        assert_eq!(parents(engine, FILE).await, []);
    }

    async fn many_keys_are_read_at_once_in_their_order(store) {
        let engine = store.engine.as_ref();
        let there = [
            Change::PutAttr(DIR, dir()),
            Change::PutAttr(FILE, file()),
            Change::PutEntry(DIR, name("a"), entry(FILE)),
            Change::PutSymlink(OTHER, Bytes::from_static(b"t")),
        ];
        commit(engine, &there).await;
        let keys = [
            Key::Lookup(DIR, name("a")),
            Key::HasEntries(DIR),
            Key::Attr(FILE),
            Key::Attr(FILE),
            Key::Xattrs(FILE),
            Key::Symlink(OTHER),
            Key::Attr(OTHER),
            Key::Entry(DIR, name("b")),
        ];
        let expected = [
            Record::Lookup(Some(Found { entry: entry(FILE), attr: Some(file()) })),
            Record::HasEntries(true),
            Record::Attr(Some(file())),
            Record::Attr(Some(file())),
            Record::Xattrs(Vec::new()),
            Record::Symlink(Some(Bytes::from_static(b"t"))),
            Record::Attr(None),
            Record::Entry(None),
        ];
        assert_eq!(engine.read(&keys).await.expect("reads"), expected);
        assert_eq!(engine.begin().read(&keys).await.expect("reads"), expected);
        assert_eq!(engine.begin().peek(&keys).await.expect("reads"), expected);
        assert_eq!(engine.read(&[]).await.expect("reads nothing"), []);
    }
}
