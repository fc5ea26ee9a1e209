//! Random operations of several clients, compared with a plain in-memory tree.
//!
//! A failure shrinks to a short list of steps; keep it below as a `regression_...` test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::reference::{Model, Outcome, Path, ROOT, Refusal};
use crate::support::tree::Tree;
use crate::support::volume::{Volume, setting, setting_with_trash};
use jfs::Error;
use jfs::meta::client::Progress;
use jfs::meta::record::{Counter, DirStat, FileKind, QuotaKey, Slice};
use jfs::meta::{
    AttrSet, Caller, CloneMode, EntryRef, Ino, Limits, Meta, Name, NodeKind, RenameMode, Timestamp,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

/// Clients that take turns.
const CLIENTS: usize = 3;
/// Names in every directory; few, so that operations collide.
const NAMES: u8 = 4;
/// Users, and groups.
const OWNERS: u32 = 3;

#[derive(Clone)]
enum Step {
    Make(Path, FileKind, (u32, u32)),
    Link(Path, Path),
    Unlink(Path),
    Rmdir(Path),
    RemoveTree(Path),
    Rename(Path, Path, RenameMode),
    Truncate(Path, u64),
    Write(Path, u64, u32),
    Copy(Path, Path, u64, u64, u64),
    Chown(Path, u32, u32),
    Clone(Path, Path),
    Quota(Path),
}

/// Prints on one line, ready to be pasted into a regression test.
impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Make(path, kind, owner) => write!(f, "Make({path:?}, {kind:?}, {owner:?})"),
            Self::Link(from, to) => write!(f, "Link({from:?}, {to:?})"),
            Self::Unlink(path) => write!(f, "Unlink({path:?})"),
            Self::Rmdir(path) => write!(f, "Rmdir({path:?})"),
            Self::RemoveTree(path) => write!(f, "RemoveTree({path:?})"),
            Self::Rename(from, to, mode) => write!(f, "Rename({from:?}, {to:?}, {mode:?})"),
            Self::Truncate(path, length) => write!(f, "Truncate({path:?}, {length})"),
            Self::Write(path, at, length) => write!(f, "Write({path:?}, {at}, {length})"),
            Self::Copy(from, to, at, into, length) => {
                write!(f, "Copy({from:?}, {to:?}, {at}, {into}, {length})")
            }
            Self::Chown(path, uid, gid) => write!(f, "Chown({path:?}, {uid}, {gid})"),
            Self::Clone(from, to) => write!(f, "Clone({from:?}, {to:?})"),
            Self::Quota(path) => write!(f, "Quota({path:?})"),
        }
    }
}

fn path() -> impl Strategy<Value = Path> {
    prop::collection::vec(0..NAMES, 1..4)
}

fn kind() -> impl Strategy<Value = FileKind> {
    prop_oneof![
        4 => Just(FileKind::File),
        4 => Just(FileKind::Dir),
        1 => Just(FileKind::Symlink),
        1 => Just(FileKind::Fifo),
    ]
}

fn mode() -> impl Strategy<Value = RenameMode> {
    prop_oneof![
        3 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        2 => Just(RenameMode::Exchange),
    ]
}

/// Lengths around page and chunk boundaries.
fn length() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_000u64, (63u64 << 20)..(67 << 20), Just(64 << 20), (1u64 << 28)..(1 << 29)]
}

fn step() -> impl Strategy<Value = Step> {
    let owner = (0..OWNERS, 0..OWNERS);
    prop_oneof![
        8 => (path(), kind(), owner.clone()).prop_map(|(p, k, o)| Step::Make(p, k, o)),
        2 => (path(), path()).prop_map(|(a, b)| Step::Link(a, b)),
        2 => path().prop_map(Step::Unlink),
        2 => path().prop_map(Step::Rmdir),
        1 => path().prop_map(Step::RemoveTree),
        5 => (path(), path(), mode()).prop_map(|(a, b, m)| Step::Rename(a, b, m)),
        2 => (path(), length()).prop_map(|(p, l)| Step::Truncate(p, l)),
        3 => (path(), length(), 1..300_000u32).prop_map(|(p, o, l)| Step::Write(p, o, l)),
        1 => (path(), path(), length(), length(), length())
            .prop_map(|(a, b, i, o, l)| Step::Copy(a, b, i, o, l)),
        1 => (path(), owner).prop_map(|(p, (u, g))| Step::Chown(p, u, g)),
        1 => (path(), path()).prop_map(|(a, b)| Step::Clone(a, b)),
        1 => path().prop_map(Step::Quota),
    ]
}

/// Applies the same steps to a volume and to the model.
struct Run {
    clients: Vec<Arc<Meta>>,
    model: Model,
    quotas: BTreeSet<Ino>,
}

impl Run {
    async fn new(volume: &Volume, keeps_trash: bool) -> Self {
        let mut clients = vec![volume.meta.clone()];
        // The dir stat of the root is counted when it is first needed. Later it would include usage
        // that other clients have not sent yet.
        volume.meta.check_dir_stats(Ino::ROOT, true).await.expect("dir stats");
        while clients.len() < CLIENTS {
            clients.push(volume.client().await);
        }
        Self { clients, model: Model::new(keeps_trash), quotas: BTreeSet::new() }
    }

    async fn take(&mut self, turn: usize, step: &Step) {
        let meta = self.clients[turn % CLIENTS].clone();
        let Some((expected, actual)) = self.apply(&meta, step).await else { return };
        // Dir stats and quotas are only exact once all clients have sent their usage: a client that
        // removes what another has not sent yet would recount, and count it twice.
        meta.flush().await.expect("flush");
        let actual = actual.map_err(|error| refusal(&error));
        assert_eq!(actual, expected, "step {turn}: {step:?}");
    }

    /// Skips steps whose paths do not exist: the kernel never sends such requests.
    async fn apply(&mut self, meta: &Meta, step: &Step) -> Option<(Outcome, jfs::Result<()>)> {
        let root = Caller::root();
        Some(match step {
            Step::Make(path, kind, owner) => {
                let (dir, name) = self.place(meta, path).await?;
                let made = make(meta, &Caller::user(owner.0, owner.1), dir, &name, *kind).await;
                (self.model.make(path, *kind, *owner), made)
            }
            Step::Link(from, to) => {
                let (dir, name) = self.place(meta, to).await?;
                let ino = self.node(meta, from).await?;
                (self.model.link(from, to), meta.link(&root, ino, dir, &name).await.map(drop))
            }
            Step::Unlink(path) => {
                let (dir, name) = self.place(meta, path).await?;
                (self.model.unlink(path), meta.unlink(&root, dir, &name).await)
            }
            Step::Rmdir(path) => {
                let (dir, name) = self.place(meta, path).await?;
                (self.model.rmdir(path), meta.rmdir(&root, dir, &name).await)
            }
            Step::RemoveTree(path) => {
                let (dir, name) = self.place(meta, path).await?;
                let removed = meta.remove_tree(&root, dir, &name, true).await.map(drop);
                (self.model.remove_tree(path), removed)
            }
            Step::Rename(from, to, mode) => {
                let (src, old) = self.place(meta, from).await?;
                let (dst, new) = self.place(meta, to).await?;
                let renamed = meta
                    .rename(&root, EntryRef::new(src, &old), EntryRef::new(dst, &new), *mode)
                    .await
                    .map(drop);
                let exchange = *mode == RenameMode::Exchange;
                let no_replace = *mode == RenameMode::NoReplace;
                (self.model.rename(from, to, exchange, no_replace), renamed)
            }
            Step::Truncate(path, length) => {
                let ino = self.node(meta, path).await?;
                let cut = meta.truncate(&root, ino, *length).await.map(drop);
                (self.model.set_length(path, *length), cut)
            }
            Step::Write(path, offset, length) => {
                let ino = self.node(meta, path).await?;
                let end = write(meta, ino, *offset, *length).await;
                let expected = self.model.grow(path, end.as_ref().map_or(0, |end| *end));
                (expected, end.map(drop))
            }
            Step::Copy(from, to, at, into, length) => {
                self.copy(meta, from, to, *at, *into, *length).await?
            }
            Step::Chown(path, uid, gid) => {
                let ino = self.node(meta, path).await?;
                let set = AttrSet { uid: Some(*uid), gid: Some(*gid), ..AttrSet::default() };
                (self.model.chown(path, *uid, *gid), meta.setattr(&root, ino, set).await.map(drop))
            }
            Step::Clone(from, to) => self.clone_tree(meta, from, to).await?,
            Step::Quota(path) => {
                self.set_quota(meta, path).await?;
                return None;
            }
        })
    }

    async fn copy(
        &mut self,
        meta: &Meta,
        from: &Path,
        to: &Path,
        at: u64,
        into: u64,
        length: u64,
    ) -> Option<(Outcome, jfs::Result<()>)> {
        let (src, dst) = (self.node(meta, from).await?, self.node(meta, to).await?);
        let is_file = |path: &Path| {
            self.model.find(path).is_ok_and(|id| self.model.nodes[&id].kind == FileKind::File)
        };
        if src == dst || !is_file(from) || !is_file(to) {
            return None;
        }
        let source = self.model.nodes[&self.model.find(from).ok()?].length;
        let copied = length.min(source.saturating_sub(at));
        let done = meta.copy_file_range(src, at, dst, into, length).await;
        if let Ok(count) = &done {
            assert_eq!(count.bytes, copied, "bytes copied");
        }
        let expected = if copied == 0 { Ok(()) } else { self.model.grow(to, into + copied) };
        Some((expected, done.map(drop)))
    }

    async fn clone_tree(
        &mut self,
        meta: &Meta,
        from: &Path,
        to: &Path,
    ) -> Option<(Outcome, jfs::Result<()>)> {
        let src = self.node(meta, from).await?;
        let (dir, name) = self.place(meta, to).await?;
        // Cloning a tree into itself has no fixed result. JuiceFS allows it, but it is not
        // compared.
        if to.starts_with(from) || self.model.nodes.len() > 200 {
            return None;
        }
        let mode = CloneMode { preserve: true, umask: 0 };
        let progress = Progress::default();
        let cloned = meta
            .clone_tree(&Caller::root(), src, EntryRef::new(dir, &name), mode, 0, &progress)
            .await;
        Some((self.model.clone_tree(from, to), cloned.map(drop)))
    }

    async fn set_quota(&mut self, meta: &Meta, path: &Path) -> Option<()> {
        let id = self.model.find(path).ok()?;
        if self.model.nodes[&id].kind != FileKind::Dir {
            return None;
        }
        let ino = self.node(meta, path).await?;
        let limits = Limits { space: Some(1 << 50), inodes: Some(1 << 40) };
        meta.quota_set(QuotaKey::Dir(ino), limits, true).await.expect("quota");
        for client in &self.clients {
            client.heartbeat().await.expect("heartbeat");
        }
        self.quotas.insert(ino);
        Some(())
    }

    async fn place(&self, meta: &Meta, path: &Path) -> Option<(Ino, Name)> {
        let (last, dirs) = path.split_last()?;
        let id = self.model.find(dirs).ok()?;
        if self.model.nodes[&id].kind != FileKind::Dir {
            return None;
        }
        Some((meta.ino(&text(dirs)).await, Name::new(letter(*last)).ok()?))
    }

    async fn node(&self, meta: &Meta, path: &Path) -> Option<Ino> {
        self.model.find(path).ok()?;
        Some(meta.ino(&text(path)).await)
    }

    async fn flush(&self) {
        for client in &self.clients {
            client.flush().await.expect("flush");
        }
    }

    /// Compares everything in the volume with the model.
    async fn compare(&self) {
        self.flush().await;
        let meta = &self.clients[0];
        let mut inos: BTreeMap<usize, Ino> = BTreeMap::new();
        for (path, id) in self.model.walk() {
            let (ino, attr) = meta.at(&text(&path)).await.expect("the model has it");
            let node = &self.model.nodes[&id];
            let place = text(&path);
            assert_eq!(*inos.entry(id).or_insert(ino), ino, "names of one node: {place}");
            assert_eq!(attr.kind, node.kind, "kind of {place}");
            assert_eq!(attr.nlink, self.model.nlink(id), "links of {place}");
            if node.kind == FileKind::File {
                assert_eq!(attr.length, node.length, "length of {place}");
            }
            if id != ROOT {
                assert_eq!((attr.uid, attr.gid), (node.uid, node.gid), "owner of {place}");
            }
            if node.kind == FileKind::Dir {
                self.compare_dir(meta, ino, id, &place).await;
            }
        }
        self.compare_usage(meta).await;
    }

    async fn compare_dir(&self, meta: &Meta, ino: Ino, id: usize, place: &str) {
        let mut names: Vec<String> = meta
            .entries(ino, false)
            .await
            .expect("listing")
            .iter()
            .map(|entry| entry.name.to_string())
            .collect();
        names.sort();
        let expected: Vec<String> =
            self.model.nodes[&id].children.keys().map(|name| letter(*name)).collect();
        assert_eq!(names, expected, "entries of {place}");
        let stat: DirStat = meta.dir_stat(ino).await.expect("dir stat");
        assert_eq!(stat, self.model.dir_stat(id), "dir stat of {place}");
        if self.quotas.contains(&ino) {
            let quota = meta.quota(QuotaKey::Dir(ino)).await.expect("quota");
            let quota = quota.unwrap_or_else(|| panic!("the quota of {place} is gone"));
            let used = (quota.used_space, quota.used_inodes);
            assert_eq!(used, self.model.below(id), "quota usage of {place}");
        }
    }

    async fn compare_usage(&self, meta: &Meta) {
        let hours = i64::try_from(meta.entries(Ino::TRASH, false).await.map_or(0, |e| e.len()))
            .expect("few hours");
        let used = meta.engine().counter(Counter::UsedSpace).await.expect("counter");
        let inodes = meta.engine().counter(Counter::TotalInodes).await.expect("counter");
        let (space, nodes) = self.model.usage();
        assert_eq!((used, inodes), (space + hours * 4096, nodes + hours), "volume usage");
        if meta.context().setting().user_group_quota {
            let [users, groups] = self.model.owner_usage();
            self.compare_owners(meta, &users, QuotaKey::User).await;
            self.compare_owners(meta, &groups, QuotaKey::Group).await;
        }
    }

    async fn compare_owners(
        &self,
        meta: &Meta,
        usage: &BTreeMap<u32, (i64, i64)>,
        key: fn(u32) -> QuotaKey,
    ) {
        for owner in 0..OWNERS {
            let expected = usage.get(&owner).copied().unwrap_or_default();
            let quota = meta.quota(key(owner)).await.expect("quota");
            let used = quota.map(|quota| (quota.used_space, quota.used_inodes));
            assert_eq!(used.unwrap_or_default(), expected, "usage of {:?}", key(owner));
        }
    }
}

async fn make(
    meta: &Meta,
    caller: &Caller,
    dir: Ino,
    name: &Name,
    kind: FileKind,
) -> jfs::Result<()> {
    match kind {
        FileKind::Dir => meta.mkdir(caller, dir, name, 0o777, 0).await.map(drop),
        FileKind::Symlink => meta.symlink(caller, dir, name, "target".into()).await.map(drop),
        _ => {
            let node = NodeKind { kind, rdev: 0 };
            meta.mknod(caller, dir, name, node, 0o777, 0).await.map(drop)
        }
    }
}

/// Commits one slice, cut at the end of its chunk. Returns the file offset of its end.
async fn write(meta: &Meta, ino: Ino, offset: u64, length: u32) -> jfs::Result<u64> {
    const CHUNK: u64 = 1 << 26;
    let (index, at) = (offset / CHUNK, offset % CHUNK);
    let length = u64::from(length).min(CHUNK - at);
    let id = meta.new_slice().await?;
    let len = u32::try_from(length).expect("within a chunk");
    let pos = u32::try_from(at).expect("within a chunk");
    let slice = Slice { pos, id, size: len, off: 0, len };
    let index = u32::try_from(index).expect("few chunks");
    meta.write(ino, index, pos, slice, Timestamp::now()).await?;
    Ok(offset + length)
}

fn letter(name: u8) -> String {
    char::from(b'a' + name).to_string()
}

fn text(path: &[u8]) -> String {
    path.iter().map(|name| letter(*name)).collect::<Vec<_>>().join("/")
}

fn refusal(error: &Error) -> Refusal {
    match error {
        Error::NotFound => Refusal::NotFound,
        Error::Exists => Refusal::Exists,
        Error::NotDirectory => Refusal::NotDirectory,
        Error::IsDirectory => Refusal::IsDirectory,
        Error::NotEmpty => Refusal::NotEmpty,
        Error::NotPermitted => Refusal::NotPermitted,
        Error::Invalid => Refusal::Invalid,
        other => panic!("no operation should fail with this: {other}"),
    }
}

/// The number of cases; `JFS_MODEL_CASES` sets more for a long search.
fn cases() -> u32 {
    std::env::var("JFS_MODEL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(16)
}

fn check<F>(open: impl Fn() -> F, keeps_trash: bool)
where
    F: Future<Output = Volume>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("runtime");
    let config = Config { cases: cases(), max_shrink_iters: 3000, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let steps = prop::collection::vec(step(), 1..250);
    let outcome = runner.run(&steps, |steps| {
        runtime.block_on(async {
            let volume = open().await;
            replay(&volume, keeps_trash, &steps).await;
        });
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
            panic!("{why}\n{}", steps.join(",\n"));
        }
        Err(error) => panic!("{error}"),
    }
}

async fn replay(volume: &Volume, keeps_trash: bool, steps: &[Step]) {
    let mut run = Run::new(volume, keeps_trash).await;
    for (turn, step) in steps.iter().enumerate() {
        run.take(turn, step).await;
    }
    run.compare().await;
}

#[test]
fn random_operations_on_memory_agree_with_the_model() {
    check(Volume::memory, false);
}

#[test]
fn random_operations_on_sqlite_agree_with_the_model() {
    check(Volume::sqlite, false);
}

#[test]
fn random_operations_on_redis_agree_with_the_model() {
    check(Volume::redis, false);
}

#[test]
fn random_operations_on_tikv_agree_with_the_model() {
    check(|| Volume::tikv_with(setting()), false);
}

#[test]
fn random_operations_on_tikv_in_one_region_agree_with_the_model() {
    check(|| Volume::tikv_in_one_region_with(setting()), false);
}

#[test]
fn random_operations_with_trash_on_tikv_agree_with_the_model() {
    check(|| Volume::tikv_with(setting_with_trash()), true);
}

#[test]
fn random_operations_with_trash_on_memory_agree_with_the_model() {
    check(|| Volume::memory_with(setting_with_trash()), true);
}

#[test]
fn random_operations_with_trash_on_sqlite_agree_with_the_model() {
    check(|| Volume::sqlite_with(setting_with_trash()), true);
}

#[test]
fn random_operations_with_trash_on_redis_agree_with_the_model() {
    check(|| Volume::redis_with(setting_with_trash()), true);
}

#[test]
fn random_operations_with_owner_quotas_on_memory_agree_with_the_model() {
    let setting = jfs::meta::record::Setting { user_group_quota: true, ..setting() };
    check(move || Volume::memory_with(setting.clone()), false);
}

/// Found by the model: a directory exchanged with an entry of its own ended up inside itself.
#[tokio::test]
async fn regression_exchange_of_a_directory_with_its_own_entry_is_refused() {
    let steps = [
        Step::Make(vec![0], FileKind::Dir, (0, 0)),
        Step::Make(vec![0, 0], FileKind::File, (0, 0)),
        Step::Make(vec![0, 1], FileKind::Dir, (0, 0)),
        Step::Make(vec![0, 1, 0], FileKind::File, (0, 0)),
        Step::Rename(vec![0, 0], vec![0], RenameMode::Exchange),
        Step::Rename(vec![0, 1, 0], vec![0], RenameMode::Exchange),
        Step::Rename(vec![0], vec![0, 0], RenameMode::Exchange),
    ];
    replay(&Volume::memory().await, false, &steps).await;
}
