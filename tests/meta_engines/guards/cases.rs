//! Records that another client adds, changes or removes after they were read, for every kind of
//! key.

use bytes::Bytes;
use jfs::meta::engine::{Change, Key};
use jfs::meta::record::{Attr, DirStat, LockKind, PlockRange};
use jfs::meta::{LockOwner, Sid, SliceId};

use crate::fixtures::*;

pub struct Case {
    pub key: Key,
    pub before: Vec<Change>,
    pub meanwhile: Vec<Change>,
}

pub fn cases() -> Vec<Case> {
    let kinds =
        [attrs(), places(), entries(), lookups(), contents(), xattrs(), parents(), locks(), rest()];
    kinds.into_iter().flatten().collect()
}

fn case(key: Key, before: &[Change], meanwhile: &[Change]) -> Case {
    Case { key, before: before.to_vec(), meanwhile: meanwhile.to_vec() }
}

fn put_attr() -> Change {
    Change::PutAttr(FILE, file())
}

fn change_attr() -> Change {
    Change::PutAttr(FILE, Attr { length: 7, ..file() })
}

fn put_entry() -> Change {
    Change::PutEntry(DIR, name("a"), entry(FILE))
}

fn move_entry() -> Change {
    Change::PutEntry(DIR, name("a"), entry(OTHER))
}

fn remove_entry() -> Change {
    Change::RemoveEntry(DIR, name("a"))
}

fn attrs() -> Vec<Case> {
    let key = || Key::Attr(FILE);
    vec![
        case(key(), &[], &[put_attr()]),
        case(key(), &[put_attr()], &[change_attr()]),
        case(key(), &[put_attr()], &[Change::RemoveAttr(FILE)]),
    ]
}

fn places() -> Vec<Case> {
    let key = || Key::Place(DIR);
    let put = || Change::PutAttr(DIR, dir());
    let chmod = Change::PutAttr(DIR, Attr { mode: 0o700, ..dir() });
    let moved = Change::PutAttr(DIR, Attr { parent: OTHER, ..dir() });
    vec![
        case(key(), &[], &[put()]),
        case(key(), &[put()], &[chmod]),
        case(key(), &[put()], &[moved]),
        case(key(), &[put()], &[Change::RemoveAttr(DIR)]),
    ]
}

fn entries() -> Vec<Case> {
    let key = || Key::Entry(DIR, name("a"));
    vec![
        case(key(), &[], &[put_entry()]),
        case(key(), &[put_entry()], &[move_entry()]),
        case(key(), &[put_entry()], &[remove_entry()]),
        case(Key::HasEntries(DIR), &[], &[put_entry()]),
        case(Key::HasEntries(DIR), &[put_entry()], &[remove_entry()]),
    ]
}

fn lookups() -> Vec<Case> {
    let key = || Key::Lookup(DIR, name("a"));
    let there = [put_entry(), put_attr()];
    vec![
        case(key(), &[], &there),
        case(key(), &there, &[move_entry()]),
        case(key(), &there, &[change_attr()]),
        case(key(), &there, &[remove_entry(), Change::RemoveAttr(FILE)]),
    ]
}

fn contents() -> Vec<Case> {
    let key = || Key::Chunk(FILE, 0);
    let write = |id| append(FILE, 0, vec![slice(id)]);
    let target = |text| Change::PutSymlink(FILE, Bytes::from_static(text));
    vec![
        case(key(), &[], &[write(1)]),
        case(key(), &[write(1)], &[write(2)]),
        case(key(), &[write(1)], &[Change::RemoveChunk { ino: FILE, index: 0 }]),
        case(Key::Symlink(FILE), &[], &[target(b"t")]),
        case(Key::Symlink(FILE), &[target(b"t")], &[Change::RemoveSymlink(FILE)]),
    ]
}

fn xattrs() -> Vec<Case> {
    let key = || Key::Xattr(FILE, name("user.k"));
    let put = |value| Change::PutXattr(FILE, name("user.k"), Bytes::from_static(value));
    vec![
        case(key(), &[], &[put(b"1")]),
        case(key(), &[put(b"1")], &[put(b"2")]),
        case(key(), &[put(b"1")], &[Change::RemoveXattr(FILE, name("user.k"))]),
        case(Key::Xattrs(FILE), &[], &[put(b"1")]),
        case(Key::Xattrs(FILE), &[put(b"1")], &[put(b"2")]),
        case(Key::Xattrs(FILE), &[put(b"1")], &[Change::RemoveXattrs(FILE)]),
    ]
}

/// Includes the entries from which some engines derive parents.
fn parents() -> Vec<Case> {
    let link = |text| {
        [
            Change::PutEntry(DIR, name(text), entry(FILE)),
            Change::AddParent { ino: FILE, parent: DIR, count: 1 },
        ]
    };
    let unlink = [remove_entry(), Change::AddParent { ino: FILE, parent: DIR, count: -1 }];
    vec![
        case(Key::Parents(FILE), &[], &link("a")),
        case(Key::Parents(FILE), &link("a"), &link("b")),
        case(Key::Parents(FILE), &link("a"), &unlink),
    ]
}

fn locks() -> Vec<Case> {
    let (sid, owner) = (Sid(1), LockOwner(1));
    let flock = |owner, kind| Change::PutFlock { ino: FILE, sid, owner, kind };
    let ranges = |end| vec![PlockRange { kind: LockKind::Write, pid: 1, start: 0, end }];
    let plock = |end| Change::PutPlock { ino: FILE, sid, owner, ranges: ranges(end) };
    let read = flock(owner, LockKind::Read);
    let second = flock(LockOwner(2), LockKind::Read);
    let (flocks, plocks) = (|| Key::Flocks(FILE), || Key::Plocks(FILE));
    vec![
        case(flocks(), &[], std::slice::from_ref(&read)),
        case(flocks(), std::slice::from_ref(&read), &[second]),
        case(flocks(), std::slice::from_ref(&read), &[flock(owner, LockKind::Write)]),
        case(flocks(), &[read], &[Change::RemoveFlock { ino: FILE, sid, owner }]),
        case(plocks(), &[], &[plock(5)]),
        case(plocks(), &[plock(5)], &[plock(6)]),
        case(plocks(), &[plock(5)], &[Change::RemovePlock { ino: FILE, sid, owner }]),
    ]
}

fn rest() -> Vec<Case> {
    let sustained = || Key::Sustained(Sid(1), FILE);
    let (sustain, release) =
        (Change::AddSustained(Sid(1), FILE), Change::RemoveSustained(Sid(1), FILE));
    let refs = || Key::SliceRef(sized(1).id, sized(1).size);
    let add_ref = |by| Change::AddSliceRef { slice: sized(1), by };
    let delayed = || Key::Delayed(SliceId(9), 5);
    let delay = |id| Change::PutDelayed { id: SliceId(9), at: 5, slices: vec![sized(id)] };
    let undelay = Change::RemoveDelayed { id: SliceId(9), at: 5 };
    let stat = |inodes| Change::PutDirStat(DIR, DirStat { length: 1, space: 4096, inodes });
    vec![
        case(sustained(), &[], std::slice::from_ref(&sustain)),
        case(sustained(), &[sustain], &[release]),
        case(refs(), &written(FILE, 1), &[add_ref(1)]),
        case(refs(), &[Change::TrackSlice(sized(1)), add_ref(-1)], &[add_ref(1)]),
        case(delayed(), &[], &[delay(1)]),
        case(delayed(), &[delay(1)], &[undelay]),
        case(Key::DirStat(DIR), &[], &[stat(1)]),
        case(Key::DirStat(DIR), &[stat(1)], &[stat(2)]),
        case(Key::DirStat(DIR), &[stat(1)], &[Change::RemoveDirStat(DIR)]),
    ]
}
