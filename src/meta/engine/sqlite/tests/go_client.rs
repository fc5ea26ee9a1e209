//! Volumes that the Go client writes and this client reads, and the other way round.

use std::os::unix::fs::symlink;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Output};

use rusqlite::Connection;

use super::*;
use crate::meta::engine::Cursor;
use crate::meta::record::Counter;

/// A volume that the Go client formatted.
pub struct Go {
    dir: TempDir,
    binary: PathBuf,
}

/// A mount of the Go client, unmounted when dropped.
pub struct Mount<'a> {
    go: &'a Go,
}

impl Go {
    pub fn format(options: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/juicefs.sh");
        let found = Command::new(script).output().unwrap();
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
        let binary = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
        let go = Self { dir: tempfile::tempdir().unwrap(), binary };
        let bucket = go.dir.path().join("bucket").display().to_string();
        let (address, options) = (go.address(), options.to_vec());
        let fixed = ["format", "--storage", "file", "--bucket", &bucket, &address, "peer"];
        go.run(&[&fixed[..], &options[..]].concat());
        go
    }

    pub fn database(&self) -> PathBuf {
        self.dir.path().join("meta.db")
    }

    pub fn address(&self) -> String {
        format!("sqlite3://{}", self.database().display())
    }

    pub fn connection(&self) -> Connection {
        Connection::open(self.database()).unwrap()
    }

    /// Runs a command, which must succeed, and returns its output.
    pub fn run(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = Command::new(&self.binary)
            .args(arguments)
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .output()
            .unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{arguments:?}: {stdout}{stderr}");
        format!("{stdout}{stderr}")
    }

    pub fn mount(&self) -> Mount<'_> {
        let at = self.dir.path().join("mnt");
        std::fs::create_dir_all(&at).unwrap();
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let (address, cache, log) = (self.address(), path("cache"), path("log"));
        self.run(&[
            "mount",
            "-d",
            "--no-usage-report",
            "--enable-xattr",
            "--cache-dir",
            &cache,
            "--log",
            &log,
            &address,
            &path("mnt"),
        ]);
        Mount { go: self }
    }
}

impl Mount<'_> {
    pub fn path(&self) -> PathBuf {
        self.go.dir.path().join("mnt")
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let at = self.path().display().to_string();
        let _ = Command::new(&self.go.binary).args(["umount", &at]).output();
    }
}

async fn all(engine: &SqliteEngine, dir: Ino) -> Vec<(String, Entry)> {
    let page = engine.list(dir, &Cursor::Start, 1000).await.unwrap();
    page.entries.into_iter().map(|(name, entry)| (name.to_string(), entry)).collect()
}

async fn attr(engine: &SqliteEngine, ino: Ino) -> Attr {
    match engine.read(&[Key::Attr(ino)]).await.unwrap().remove(0) {
        Record::Attr(Some(attr)) => attr,
        other => panic!("inode {ino}: {other:?}"),
    }
}

#[tokio::test]
async fn records_of_the_go_client_are_read() {
    let go = Go::format(&["--enable-acl"]);
    let mount = go.mount();
    let root = mount.path();
    std::fs::create_dir(root.join("d1")).unwrap();
    std::fs::write(root.join("d1/a"), "hello\n").unwrap();
    std::fs::hard_link(root.join("d1/a"), root.join("d1/b")).unwrap();
    for _ in 0..3 {
        let more = std::fs::OpenOptions::new().append(true).open(root.join("d1/b")).unwrap();
        std::io::Write::write_all(&mut &more, b"more\n").unwrap();
        more.sync_all().unwrap();
    }
    symlink("tgt", root.join("s")).unwrap();
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(70 << 20).unwrap();
    let stats = std::fs::metadata(root.join("d1/a")).unwrap();
    std::fs::remove_file(root.join("d1/a")).unwrap();
    drop(sparse);

    let engine = open(&go.database(), "").await.unwrap();
    assert!(engine.load_setting().await.unwrap().unwrap().starts_with(b"{\n\"Name\": \"peer\""));
    let listed = all(&engine, Ino::ROOT).await;
    let names: Vec<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["d1", "s", "sparse"]);
    let (dir, link, hole) = (listed[0].1.ino, listed[1].1.ino, listed[2].1.ino);
    assert_eq!(attr(&engine, dir).await.kind, FileKind::Dir);
    let target = engine.read(&[Key::Symlink(link)]).await.unwrap();
    assert_eq!(target, [Record::Symlink(Some(bytes("tgt")))]);
    assert_eq!(attr(&engine, hole).await.length, 70 << 20);
    assert_eq!(engine.chunk_indexes(hole, 70 << 20).await.unwrap(), [0, 1]);

    let file = all(&engine, dir).await[0].1;
    let seen = attr(&engine, file.ino).await;
    assert_eq!((seen.length, seen.nlink, seen.parent), (21, 2, Ino::NONE));
    let nsec = u32::try_from(stats.mtime_nsec()).unwrap();
    assert_eq!(seen.mtime, Timestamp { sec: stats.mtime(), nsec });
    let Record::Chunk(slices) = engine.read(&[Key::Chunk(file.ino, 0)]).await.unwrap().remove(0)
    else {
        panic!()
    };
    let lengths: Vec<u32> = slices.iter().map(|slice| slice.len).collect();
    assert_eq!(lengths, [6, 5, 5, 5]);
    let Record::Parents(parents) = engine.read(&[Key::Parents(file.ino)]).await.unwrap().remove(0)
    else {
        panic!()
    };
    assert_eq!(parents.len(), 2, "the directory and the trash");
    assert_eq!(
        engine.read(&[Key::SliceRef(slices[0].id, 6)]).await.unwrap(),
        [Record::SliceRef(1)]
    );
    assert_eq!(engine.sessions().await.unwrap().len(), 1);
    assert_eq!(engine.counter(Counter::NextInode).await.unwrap(), 1026);
}

#[tokio::test]
async fn a_mounted_go_client_sees_our_writes() {
    let go = Go::format(&[]);
    let mount = go.mount();
    std::fs::create_dir(mount.path().join("d")).unwrap();
    let engine = open(&go.database(), "").await.unwrap();
    engine.prepare().await.unwrap();
    let dir = all(&engine, Ino::ROOT).await[0].1.ino;

    let ino =
        Ino(engine.add_counter(Counter::NextInode, 1024).await.unwrap().cast_unsigned() - 1024);
    let mut tx = engine.begin();
    let records = tx.read(&[Key::Attr(dir), Key::Entry(dir, name("ours"))]).await.unwrap();
    let Record::Attr(Some(mut parent)) = records[0].clone() else { panic!() };
    parent.mtime = time();
    let mut attr = file_attr();
    attr.parent = dir;
    attr.length = 5;
    let hole = Slice::hole(0, 5);
    tx.commit(&[
        Change::PutAttr(ino, attr),
        Change::PutAttr(dir, parent),
        Change::PutEntry(dir, name("ours"), file(ino.0)),
        Change::AppendSlices { ino, index: 0, slices: vec![hole], if_present: false },
        Change::PutXattr(ino, name("user.k"), bytes("val")),
        Change::AddUsage { space: 4096, inodes: 1 },
    ])
    .await
    .unwrap();

    let ours = mount.path().join("d/ours");
    let stats = std::fs::metadata(&ours).unwrap();
    assert_eq!((stats.ino(), stats.len(), stats.uid(), stats.mode()), (ino.0, 5, 1000, 0o100_644));
    assert_eq!((stats.mtime(), stats.mtime_nsec()), (time().sec, i64::from(time().nsec)));
    assert_eq!(std::fs::read(&ours).unwrap(), [0; 5]);
    // The Go client writes to it, and both see the sum.
    let opened = std::fs::OpenOptions::new().write(true).open(&ours).unwrap();
    opened.write_all_at(b"theirs", 2).unwrap();
    opened.sync_all().unwrap();
    let Record::Attr(Some(seen)) = engine.read(&[Key::Attr(ino)]).await.unwrap().remove(0) else {
        panic!()
    };
    assert_eq!(seen.length, 8);
    drop(opened);
    std::fs::rename(&ours, mount.path().join("moved")).unwrap();
    assert_eq!(engine.read(&[Key::Entry(dir, name("ours"))]).await.unwrap(), [Record::Entry(None)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_clients_write_at_once_and_the_volume_stays_consistent() {
    let go = Go::format(&[]);
    let mount = go.mount();
    let engine = Arc::new(open(&go.database(), "").await.unwrap());
    let first = engine.add_counter(Counter::NextInode, 1024).await.unwrap().cast_unsigned() - 1024;
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                for round in 0..25 {
                    let ino = first + task * 25 + round;
                    create(&engine, Ino(ino), &name(&format!("ours{ino}"))).await;
                }
            })
        })
        .collect();
    let at = mount.path();
    let theirs = tokio::task::spawn_blocking(move || {
        for i in 0..100 {
            std::fs::write(at.join(format!("theirs{i}")), "x").unwrap();
        }
    });
    for task in tasks {
        task.await.unwrap();
    }
    theirs.await.unwrap();

    assert_eq!(all(&engine, Ino::ROOT).await.len(), 300);
    let visible =
        |found: &std::fs::DirEntry| !found.file_name().as_encoded_bytes().starts_with(b".");
    let listed = std::fs::read_dir(mount.path()).unwrap().map(Result::unwrap);
    assert_eq!(listed.filter(visible).count(), 300);
    drop(mount);
    engine.close().await.unwrap();
    go.run(&["fsck", &go.address()]);
    go.run(&["fsck", &go.address(), "--path", "/", "-r", "--sync-dir-stat", "--repair"]);
    let used: i64 = go
        .connection()
        .query_row("SELECT value FROM jfs_counter WHERE name = 'totalInodes'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(used, 300);
}

/// Creates a file in the root, again after each conflict.
async fn create(engine: &SqliteEngine, ino: Ino, called: &Name) {
    loop {
        let mut tx = engine.begin();
        let keys = [Key::Attr(Ino::ROOT), Key::Entry(Ino::ROOT, called.clone())];
        let records = tx.read(&keys).await.unwrap();
        assert_eq!(records[1], Record::Entry(None));
        let Record::Attr(Some(mut root)) = records[0].clone() else { panic!() };
        root.mtime = Timestamp::now();
        let changes = [
            Change::PutAttr(Ino::ROOT, root),
            Change::PutAttr(ino, file_attr()),
            Change::PutEntry(Ino::ROOT, called.clone(), file(ino.0)),
            Change::AddUsage { space: 4096, inodes: 1 },
        ];
        match tx.commit(&changes).await {
            Ok(_) => return,
            Err(CommitError::Conflict) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}
