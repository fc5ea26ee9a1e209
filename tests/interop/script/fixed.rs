//! Fixed scripts, which together have every kind of metadata operation.

use crate::script::runner::{QuotaTarget, ScriptPart};
use crate::script::step::{
    Acl, Allocate, GROUP, GROUP_OBJ, MASK, NodeType, OTHER, RenameFlag, Step, USER, USER_OBJ,
    Xattr, acl,
};

const CHUNK: u64 = 64 << 20;
/// A time in the past, in nanoseconds since 1970.
const PAST: u64 = 1_000_000_000_123_456_789;

fn s(text: &str) -> String {
    text.to_owned()
}
fn mkdir(path: &str) -> Step {
    Step::Mkdir(s(path), 0o755)
}
fn file(path: &str) -> Step {
    Step::File(s(path), 0o644)
}
fn link(from: &str, to: &str) -> Step {
    Step::Link(s(from), s(to))
}
fn symlink(target: &str, path: &str) -> Step {
    Step::Symlink { target: s(target), path: s(path) }
}
fn rm(path: &str) -> Step {
    Step::Unlink(s(path))
}
fn rmdir(path: &str) -> Step {
    Step::Rmdir(s(path))
}
fn mv(from: &str, to: &str) -> Step {
    Step::Rename(s(from), s(to), RenameFlag::Replace)
}
fn mv_as(from: &str, to: &str, flag: RenameFlag) -> Step {
    Step::Rename(s(from), s(to), flag)
}
fn truncate(path: &str, length: u64) -> Step {
    Step::Truncate(s(path), length)
}
fn write(path: &str, off: u64, len: u32) -> Step {
    Step::Write(s(path), off, len)
}
fn clone(from: &str, to: &str, preserve: bool) -> Step {
    Step::Clone { from: s(from), to: s(to), preserve }
}
fn by(uid: u32, step: Step) -> Step {
    Step::As(uid, uid, Box::new(step))
}

/// Names, nodes of every kind, links, removals and renames.
pub fn names() -> Vec<ScriptPart> {
    let steps = vec![
        mkdir("/dir"),
        Step::Mkdir(s("/dir/open"), 0o777),
        Step::Mkdir(s("/dir/shut"), 0o700),
        mkdir("/dir/open/deep"),
        file("/empty"),
        Step::File(s("/dir/odd"), 0o666),
        file("/empty"),
        mkdir("/dir"),
        file("/dir/name with space %41 \"quoted\" \\ é"),
        Step::Mknod(s("/fifo"), NodeType::Fifo, 0o644),
        Step::Mknod(s("/socket"), NodeType::Socket, 0o600),
        Step::Mknod(s("/null"), NodeType::Char(0x103), 0o666),
        Step::Mknod(s("/disk"), NodeType::Block(0x801), 0o660),
        Step::Mknod(s("/plain"), NodeType::Plain, 0o640),
        symlink("dir/odd", "/short"),
        symlink(&"long/".repeat(200), "/long"),
        symlink("dangling", "/dir/nowhere"),
        link("/empty", "/dir/linked"),
        link("/empty", "/dir/open/linked too"),
        link("/fifo", "/dir/fifo"),
        link("/dir", "/no"),
        link("/empty", "/dir/odd"),
        rm("/dir/linked"),
        rm("/dir/open/linked too"),
        link("/empty", "/again"),
        rm("/empty"),
        rm("/missing"),
        rm("/dir"),
        rmdir("/dir"),
        rmdir("/fifo"),
        rmdir("/dir/shut"),
        rm("/socket"),
        rm("/short"),
        rm("/null"),
        file("/gone"),
        rm("/gone"),
        file("/gone"),
        rm("/gone"),
        mkdir("/from"),
        mkdir("/to"),
        file("/from/a"),
        file("/from/b"),
        file("/to/b"),
        mkdir("/from/sub"),
        mkdir("/from/sub/sub"),
        file("/from/sub/sub/leaf"),
        mv("/from/a", "/to/a"),
        mv("/from/b", "/to/b"),
        mv("/from/sub", "/to/sub"),
        mv("/to/a", "/to/renamed"),
        mv("/to/renamed", "/to/renamed"),
        mkdir("/to/empty"),
        mkdir("/from/empty"),
        mv("/from/empty", "/to/empty"),
        mkdir("/full"),
        file("/full/x"),
        mkdir("/other"),
        mv("/other", "/full"),
        mv("/full/x", "/other"),
        mv("/other", "/full/x"),
        mv("/to", "/to/sub/sub/loop"),
        mv("/missing", "/found"),
        mv_as("/full/x", "/to/renamed", RenameFlag::NoReplace),
        mv_as("/full/x", "/to/x", RenameFlag::NoReplace),
        mv_as("/to/x", "/to/renamed", RenameFlag::Exchange),
        mv_as("/to/x", "/to/sub/sub/leaf", RenameFlag::Exchange),
        mv_as("/to/sub", "/full", RenameFlag::Exchange),
        mv_as("/full/sub", "/to/x", RenameFlag::Exchange),
        mv_as("/full/sub", "/missing", RenameFlag::Exchange),
        mv_as("/full/sub", "/full/whiteout", RenameFlag::Whiteout),
        file("/one"),
        link("/one", "/two"),
        mv("/one", "/two"),
        mv("/one", "/dir/one"),
        mv("/dir/one", "/plain"),
        mv_as("/two", "/dir/odd", RenameFlag::Exchange),
        mv("/dir/fifo", "/dir/fifo2"),
        rm("/fifo"),
        mv("/dir/nowhere", "/dir/odd"),
    ];
    vec![ScriptPart::Session(steps)]
}

/// Modes, owners, times, attributes and ACLs.
pub fn attributes() -> Vec<ScriptPart> {
    let rule = acl(&[
        (USER_OBJ, 7, None),
        (USER, 5, Some(1001)),
        (USER, 6, Some(1002)),
        (GROUP_OBJ, 5, None),
        (GROUP, 7, Some(2001)),
        (MASK, 7, None),
        (OTHER, 1, None),
    ]);
    let minimal = acl(&[(USER_OBJ, 6, None), (GROUP_OBJ, 4, None), (OTHER, 0, None)]);
    let set_acl = |path: &str, which, rule: &[u8]| Step::SetAcl(s(path), which, rule.to_vec());
    let set =
        |path: &str, name: &str, value: &str, how| Step::SetXattr(s(path), s(name), s(value), how);
    let steps = vec![
        mkdir("/dir"),
        file("/file"),
        symlink("file", "/link"),
        Step::Chmod(s("/file"), 0o600),
        Step::Chmod(s("/file"), 0o600),
        Step::Chmod(s("/dir"), 0o2775),
        Step::Chown(s("/dir"), 1000, 2000),
        Step::Chown(s("/file"), 1000, 1000),
        Step::Chown(s("/link"), 7, 8),
        Step::Times(s("/file"), PAST, PAST + 1),
        Step::Times(s("/dir"), PAST, PAST),
        Step::Times(s("/link"), 1_500_000_000_000_001_000, 0),
        // Group and mode come from the parent.
        file("/dir/inherits"),
        mkdir("/dir/inherits too"),
        by(1000, file("/dir/by user")),
        by(1000, mkdir("/dir/dir by user")),
        by(1001, file("/dir/refused")),
        by(1000, Step::Chmod(s("/dir/by user"), 0o640)),
        by(1001, Step::Chmod(s("/dir/by user"), 0o600)),
        by(1001, Step::Chown(s("/dir/by user"), 1001, 1001)),
        Step::Mkdir(s("/sticky"), 0o777),
        Step::Chmod(s("/sticky"), 0o1777),
        by(1000, file("/sticky/mine")),
        by(1001, rm("/sticky/mine")),
        by(1001, mv("/sticky/mine", "/sticky/yours")),
        by(1000, mv("/sticky/mine", "/sticky/still mine")),
        by(1000, rm("/sticky/still mine")),
        set("/file", "user.one", "1", Xattr::Any),
        set("/file", "user.one", "2", Xattr::Create),
        set("/file", "user.one", "3", Xattr::Replace),
        set("/file", "user.two", "é\"%", Xattr::Create),
        set("/file", "user.none", "x", Xattr::Replace),
        set("/file", "user.empty", "", Xattr::Any),
        set("/dir", "trusted.dir", "value", Xattr::Any),
        Step::RemoveXattr(s("/file"), s("user.two")),
        Step::RemoveXattr(s("/file"), s("user.two")),
        file("/gone"),
        set("/gone", "user.one", "1", Xattr::Any),
        rm("/gone"),
        file("/acl"),
        set_acl("/acl", Acl::Access, &rule),
        Step::Chmod(s("/acl"), 0o640),
        set_acl("/dir", Acl::Default, &rule),
        file("/dir/by default"),
        mkdir("/dir/default dir"),
        file("/dir/default dir/below"),
        symlink("x", "/dir/default dir/link"),
        file("/acl2"),
        set_acl("/acl2", Acl::Access, &rule),
        set_acl("/acl2", Acl::Access, &minimal),
        file("/acl3"),
        set_acl("/acl3", Acl::Access, &rule),
        set_acl("/acl3", Acl::Access, &[]),
        mkdir("/plain default"),
        set_acl("/plain default", Acl::Default, &minimal),
        file("/plain default/file"),
        mkdir("/plain default/dir"),
        set_acl("/dir", Acl::Default, &[]),
        file("/dir/no default"),
    ];
    vec![ScriptPart::Session(steps)]
}

/// Lengths, holes, slices, copies.
pub fn content() -> Vec<ScriptPart> {
    let allocate = |path: &str, how, off, len| Step::Fallocate(s(path), how, off, len);
    let copy = |from: &str, at, to: &str, to_at, len| Step::Copy(s(from), at, s(to), to_at, len);
    let steps = vec![
        mkdir("/dir"),
        file("/sparse"),
        truncate("/sparse", 3 * CHUNK + (8 << 20)),
        truncate("/sparse", CHUNK + 5),
        truncate("/sparse", CHUNK + 5),
        truncate("/sparse", CHUNK),
        truncate("/sparse", 0),
        truncate("/sparse", 10_000),
        truncate("/dir", 1),
        truncate("/missing", 1),
        file("/dir/data"),
        write("/dir/data", 0, 100_000),
        write("/dir/data", 50_000, 5),
        truncate("/dir/data", 60_000),
        truncate("/dir/data", 80_000),
        write("/dir/data", CHUNK + 10, 3),
        file("/blocks"),
        write("/blocks", 4 << 20, 130_000),
        file("/holes"),
        allocate("/holes", Allocate::Grow, 1000, 2 * CHUNK),
        allocate("/holes", Allocate::Keep, 0, 3 * CHUNK),
        write("/holes", 4096, 8192),
        allocate("/holes", Allocate::Punch, 5000, 1000),
        allocate("/holes", Allocate::Punch, CHUNK - 10, 3 * CHUNK),
        allocate("/holes", Allocate::Zero, 6000, 100),
        allocate("/holes", Allocate::Zero, 2 * CHUNK, 5000),
        allocate("/holes", Allocate::ZeroKeep, 2 * CHUNK, 50_000),
        file("/copy"),
        copy("/dir/data", 0, "/copy", 0, 80_000),
        copy("/dir/data", 40_000, "/copy", CHUNK - 100, 20_000),
        copy("/sparse", 0, "/copy", 4096, 10_000),
        copy("/copy", 0, "/copy", 200_000, 1000),
        copy("/copy", 0, "/copy", 500, 1000),
        copy("/dir/data", 90_000_000, "/copy", 0, 10),
        link("/dir/data", "/linked"),
        write("/linked", 1000, 10),
        file("/removed"),
        write("/removed", 0, 5000),
        rm("/removed"),
        file("/shared"),
        copy("/dir/data", 0, "/shared", 0, 100),
        rm("/dir/data"),
        file("/flag"),
        write("/flag", 0, 9000),
        file("/under"),
        write("/under", 0, 9001),
        mv("/flag", "/under"),
        write("/under", 100, 200),
    ];
    vec![ScriptPart::Session(steps)]
}

/// Clones of files and trees. No FIFO, socket or device in a tree: the Go client leaves them out.
pub fn clones() -> Vec<ScriptPart> {
    let before = vec![
        mkdir("/tree"),
        mkdir("/tree/sub"),
        file("/tree/file"),
        write("/tree/file", 0, 10_000),
        truncate("/tree/file", 2 * CHUNK),
        Step::File(s("/tree/sub/mode"), 0o600),
        Step::Chown(s("/tree/sub/mode"), 1000, 1000),
        Step::Times(s("/tree/sub/mode"), PAST, PAST),
        symlink("file", "/tree/link"),
        link("/tree/file", "/tree/sub/hard"),
        Step::SetXattr(s("/tree/file"), s("user.x"), s("value"), Xattr::Any),
        mkdir("/into"),
    ];
    let steps = vec![
        clone("/tree", "/into/clone", false),
        clone("/tree", "/into/preserved", true),
        clone("/tree/file", "/into/file", false),
        clone("/tree/sub/mode", "/into/mode", true),
        rm("/tree/file"),
        write("/into/clone/file", 5, 10),
        rm("/into/file"),
    ];
    // The Go client clones a directory's usage as it was last flushed.
    vec![ScriptPart::Session(before), ScriptPart::Session(steps)]
}

/// Usage under quotas of directories, users and groups. No symlink changes hands: the Go client
/// would leave its usage with the old owner.
pub fn quotas() -> Vec<ScriptPart> {
    let before = vec![
        mkdir("/dir"),
        mkdir("/dir/inner"),
        file("/dir/inner/file"),
        write("/dir/inner/file", 0, 10_000),
        mkdir("/other"),
        file("/other/file"),
        truncate("/other/file", 5000),
        Step::Chown(s("/other/file"), 1000, 2000),
        mkdir("/plain"),
    ];
    let after = vec![
        file("/dir/one"),
        write("/dir/one", 0, 5000),
        mkdir("/dir/inner/two"),
        mv("/dir/inner/two", "/other/two"),
        mv("/dir/one", "/plain/one"),
        mv("/other/file", "/dir/inner/file"),
        link("/plain/one", "/dir/linked"),
        Step::Chown(s("/plain/one"), 1000, 1000),
        truncate("/plain/one", 100_000),
        truncate("/dir/linked", 10),
        mkdir("/dir/inner/a"),
        file("/dir/inner/a/b"),
        mv("/dir/inner/a", "/plain/a"),
        mv_as("/plain/a", "/other/two", RenameFlag::Exchange),
        rm("/other/two/b"),
        rmdir("/plain/a"),
        symlink("target", "/dir/symlink"),
        rm("/dir/linked"),
        // Past the limit of five inodes.
        mkdir("/tight/1"),
        file("/tight/2"),
        file("/tight/3"),
        file("/tight/4"),
        symlink("5", "/tight/5"),
        file("/tight/6"),
        mkdir("/tight/7"),
        mv("/plain/one", "/tight/8"),
        link("/plain/one", "/tight/9"),
        rm("/tight/2"),
        file("/tight/10"),
        truncate("/tight/10", 1 << 30),
        truncate("/tight/10", 2 << 30),
    ];
    // In a session of its own: the Go client clones a directory's usage as it was last flushed.
    let cloned = vec![clone("/dir", "/other/clone", false)];
    let last = vec![rm("/dir/inner/file"), file("/dir/last"), rmdir("/dir/missing")];
    let (path, gib) = (QuotaTarget::Path, 1 << 30);
    let mut before = before;
    before.push(mkdir("/tight"));
    vec![
        ScriptPart::Session(before),
        ScriptPart::SetQuota(path("/dir"), Some(10 * gib), Some(1000)),
        ScriptPart::SetQuota(path("/dir/inner"), None, Some(100)),
        ScriptPart::SetQuota(path("/other"), Some(gib), None),
        ScriptPart::SetQuota(path("/tight"), Some(2 * gib), Some(5)),
        ScriptPart::SetQuota(QuotaTarget::User(1000), Some(20 * gib), Some(50)),
        ScriptPart::SetQuota(QuotaTarget::Group(2000), None, Some(70)),
        ScriptPart::Session(after),
        ScriptPart::Session(cloned),
        ScriptPart::SetQuota(path("/dir"), None, Some(2000)),
        ScriptPart::DeleteQuota(path("/dir/inner")),
        ScriptPart::SetQuota(path("/other"), Some(0), None),
        ScriptPart::Session(last),
    ]
}
