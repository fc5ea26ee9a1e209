//! Interoperation with the Go client: each reads what the other writes, and both write at the same
//! time.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use super::fixtures::Server;
use super::*;
use crate::meta::Sid;
use crate::meta::engine::{Cursor, Found, HeldKind};
use crate::meta::record::{CHUNK_SIZE, Counter, DirStat, LockKind, Quota, QuotaKey, Setting};

/// A volume formatted and mounted by the Go client.
struct GoVolume {
    server: Server,
    mount_point: PathBuf,
    url: String,
}

impl GoVolume {
    fn mount(options: &[&str]) -> Self {
        let server = Server::start();
        let mount_point = server.dir.path().join("mnt");
        fs::create_dir(&mount_point).unwrap();
        let bucket = server.dir.path().join("bucket");
        let url = server.url();
        let mut format = vec!["format", &url, "govol", "--storage", "file", "--bucket"];
        format.push(bucket.to_str().unwrap());
        format.extend(options);
        juicefs(&format);
        let point = mount_point.to_str().unwrap();
        let cache = server.dir.path().join("cache");
        let cache = cache.to_str().unwrap();
        juicefs(&[
            "mount",
            &url,
            point,
            "-d",
            "--no-usage-report",
            "--enable-xattr",
            "--attr-cache",
            "0",
            "--entry-cache",
            "0",
            "--dir-entry-cache",
            "0",
            "--cache-dir",
            cache,
            "--skip-dir-mtime",
            "0s",
            "--heartbeat",
            "2s",
        ]);
        Self { server, mount_point, url }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount_point.join(name)
    }
}

impl Drop for GoVolume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.mount_point).output();
        // The client must have ended before its server does.
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn juicefs(args: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/juicefs.sh");
    let binary = Command::new("bash").arg(script).output().unwrap();
    assert!(binary.status.success(), "{}", String::from_utf8_lossy(&binary.stderr));
    let binary = String::from_utf8(binary.stdout).unwrap();
    let output = Command::new(binary.trim())
        .args(args)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

async fn found(engine: &RedisEngine, dir: Ino, text: &str) -> Found {
    let record = read_one(engine, Key::Lookup(dir, name(text))).await;
    let Record::Lookup(Some(found)) = record else { panic!("{text}: {record:?}") };
    found
}

async fn attr(engine: &RedisEngine, dir: Ino, text: &str) -> (Ino, Attr) {
    let found = found(engine, dir, text).await;
    (found.entry.ino, found.attr.unwrap())
}

#[tokio::test]
async fn records_of_the_go_client_are_read() {
    let volume = GoVolume::mount(&["--trash-days", "1"]);
    let engine = volume.server.engine().await;

    let setting = engine.load_setting().await.unwrap().unwrap();
    let setting: Setting = serde_json::from_slice(&setting).unwrap();
    assert_eq!((setting.name.as_str(), setting.trash_days), ("govol", 1));
    assert_eq!(engine.counter(Counter::NextInode).await.unwrap(), 1, "no inode is in use");

    fs::create_dir(volume.path("dd")).unwrap();
    fs::write(volume.path("dd/f"), b"hello\n").unwrap();
    fs::hard_link(volume.path("dd/f"), volume.path("dd/g")).unwrap();
    symlink("target", volume.path("dd/s")).unwrap();
    let sparse = File::create(volume.path("sparse")).unwrap();
    sparse.set_len(200 << 20).unwrap();
    drop(sparse);
    fs::write(volume.path("dd/gone"), b"gone").unwrap();
    fs::remove_file(volume.path("dd/gone")).unwrap();
    set_xattr(&volume.path("dd/f"), "user.k", b"val");

    let (dd, dir) = attr(&engine, Ino::ROOT, "dd").await;
    let stat = fs::metadata(volume.path("dd")).unwrap();
    assert_eq!((dd.0, dir.mode), (stat.ino(), 0o755));
    assert_eq!((dir.nlink, dir.length, dir.parent), (2, 4096, Ino::ROOT));
    assert_eq!(dir.mtime.sec, stat.mtime());

    let (file, node) = attr(&engine, dd, "f").await;
    assert_eq!((node.nlink, node.length, node.parent), (2, 6, Ino::NONE));
    assert_eq!(attr(&engine, dd, "g").await.0, file);
    assert_eq!(read_one(&engine, Key::Parents(file)).await, Record::Parents(vec![(dd, 2)]));
    let Record::Chunk(slices) = read_one(&engine, Key::Chunk(file, 0)).await else { panic!() };
    assert_eq!((slices.len(), slices[0].pos, slices[0].len), (1, 0, 6));
    assert_eq!(
        read_one(&engine, Key::Xattr(file, name("user.k"))).await,
        Record::Xattr(Some("val".into()))
    );

    let (link, node) = attr(&engine, dd, "s").await;
    assert_eq!((node.kind, node.length), (FileKind::Symlink, 6));
    assert_eq!(read_one(&engine, Key::Symlink(link)).await, Record::Symlink(Some("target".into())));

    let (sparse, node) = attr(&engine, Ino::ROOT, "sparse").await;
    assert_eq!(engine.chunk_indexes(sparse, node.length).await.unwrap(), [0, 3]);
    let record = read_one(&engine, Key::Chunk(sparse, 0)).await;
    let hole = Slice::hole(0, u32::try_from(CHUNK_SIZE).unwrap());
    assert_eq!(record, Record::Chunk(vec![hole]));

    // The trash has a directory for the hour, whose inode a double cannot represent.
    let hours = engine.list(Ino::TRASH, &Cursor::Start, 10).await.unwrap().entries;
    let (hour, entry) = &hours[0];
    assert!(entry.ino.is_sub_trash());
    let (ino, node) = attr(&engine, Ino::TRASH, &hour.to_string()).await;
    assert_eq!((ino, node.mode, node.parent), (entry.ino, 0o555, Ino::TRASH));
    let trashed = engine.list(ino, &Cursor::Start, 10).await.unwrap().entries;
    assert!(trashed[0].0.to_string().ends_with("-gone"), "{trashed:?}");

    // dd, f, s, sparse, gone, and the directory of the hour.
    assert_eq!(engine.counter(Counter::TotalInodes).await.unwrap(), 6);
    assert_eq!(engine.counter(Counter::UsedSpace).await.unwrap(), (200 << 20) + 5 * 4096);
    assert_eq!(engine.counter(Counter::NextInode).await.unwrap(), 1025);

    let sessions = engine.sessions().await.unwrap();
    assert_eq!(sessions.len(), 1);
    assert!(String::from_utf8_lossy(&sessions[0].info).contains("MountPoint"));

    // Flushed every second.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let stat = DirStat { length: 6 + 6 + 6, space: 3 * 4096, inodes: 3 };
    let Record::DirStat(Some(now)) = read_one(&engine, Key::DirStat(dd)).await else { panic!() };
    assert_eq!((now.space, now.inodes), (stat.space, stat.inodes), "{now:?}");
}

#[tokio::test]
async fn locks_and_open_files_of_the_go_client_are_listed() {
    let volume = GoVolume::mount(&["--trash-days", "0"]);
    let engine = volume.server.engine().await;
    let path = volume.path("locked");
    fs::write(&path, b"x").unwrap();
    let locked = File::options().read(true).write(true).open(&path).unwrap();
    locked.lock().unwrap();
    let range = nix::libc::flock {
        l_type: i16::try_from(nix::libc::F_RDLCK).unwrap(),
        l_whence: 0,
        l_start: 3,
        l_len: 7,
        l_pid: 0,
    };
    let ranged = File::options().read(true).write(true).open(&path).unwrap();
    nix::fcntl::fcntl(&ranged, nix::fcntl::FcntlArg::F_SETLK(&range)).unwrap();
    let mut open = File::create(volume.path("open")).unwrap();
    let ino = Ino(fs::metadata(volume.path("open")).unwrap().ino());
    fs::remove_file(volume.path("open")).unwrap();
    open.write_all(b"still here").unwrap();

    let sid = engine.sessions().await.unwrap()[0].sid;
    let file = attr(&engine, Ino::ROOT, "locked").await.0;
    let Record::Flocks(flocks) = read_one(&engine, Key::Flocks(file)).await else { panic!() };
    assert_eq!((flocks.len(), flocks[0].sid, flocks[0].kind), (1, sid, LockKind::Write));
    let Record::Plocks(plocks) = read_one(&engine, Key::Plocks(file)).await else { panic!() };
    let range = plocks[0].ranges[0];
    assert_eq!((range.kind, range.start, range.end), (LockKind::Read, 3, 9));
    let held = engine.locks_of(sid).await.unwrap();
    assert_eq!(held.len(), 2);
    assert!(held.iter().any(|lock| lock.kind == HeldKind::Flock(LockKind::Write)));
    assert_eq!(engine.sustained(sid).await.unwrap(), [ino]);

    // A lock of this client blocks the Go client.
    let (other, owner) = (Sid(sid.0 + 1), crate::meta::LockOwner(1));
    engine.release_locks(sid).await.unwrap();
    let lock = Change::PutFlock { ino: file, sid: other, owner, kind: LockKind::Read };
    put(&engine, &[lock]).await;
    let again = File::open(&path).unwrap();
    assert!(again.try_lock().is_err());
    put(&engine, &[Change::RemoveFlock { ino: file, sid: other, owner }]).await;
    again.try_lock().unwrap();
}

#[tokio::test]
async fn quotas_set_by_the_go_client_are_loaded() {
    let volume = GoVolume::mount(&["--trash-days", "0"]);
    let engine = volume.server.engine().await;
    fs::create_dir(volume.path("q")).unwrap();
    fs::write(volume.path("q/f"), b"x").unwrap();
    // The usage is the sum of directory statistics, which are flushed every second.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let set = ["quota", "set", &volume.url, "--path", "/q", "--capacity", "1", "--inodes", "100"];
    juicefs(&set);
    let dir = attr(&engine, Ino::ROOT, "q").await.0;
    let quota = Quota { max_space: 1 << 30, max_inodes: 100, used_space: 4096, used_inodes: 1 };
    assert_eq!(engine.quotas().await.unwrap(), [(QuotaKey::Dir(dir), quota)]);
    assert_eq!(engine.quota(QuotaKey::Dir(dir)).await.unwrap(), Some(quota));
}

#[tokio::test]
async fn records_of_this_client_are_read_by_the_go_client() {
    let volume = GoVolume::mount(&["--trash-days", "0"]);
    let engine = volume.server.engine().await;
    let ino = Ino(u64::try_from(engine.add_counter(Counter::NextInode, 1024).await.unwrap())
        .unwrap()
        - 1024
        + 5);
    let dir = make_dir(&engine, Ino::ROOT, "ours", ino).await;
    let target = "elsewhere";
    let link = Ino(ino.0 + 1);
    let mut node = Attr::new(FileKind::Symlink, 0o777, 5, 6, dir, Timestamp::now());
    node.length = target.len() as u64;
    let changes = [
        Change::PutAttr(link, node),
        Change::PutSymlink(link, target.into()),
        Change::PutEntry(dir, name("link"), Entry { kind: FileKind::Symlink, ino: link }),
        Change::AddUsage { space: 4096, inodes: 1 },
    ];
    put(&engine, &changes).await;
    let stat = DirStat { length: 9, space: 4096, inodes: 1 };
    assert!(engine.add_dir_stats(&[(dir, stat)]).await.unwrap().is_empty());
    let stat = DirStat { length: 0, space: 4096, inodes: 1 };
    assert_eq!(engine.add_dir_stats(&[(Ino::ROOT, stat)]).await.unwrap(), [Ino::ROOT]);
    engine.put_dir_stat(Ino::ROOT, &stat).await.unwrap();
    put(&engine, &[Change::PutXattr(dir, name("user.mine"), "yes".into())]).await;

    let path = volume.path("ours");
    assert_eq!(fs::metadata(&path).unwrap().ino(), ino.0);
    assert_eq!(fs::read_link(path.join("link")).unwrap().to_str(), Some(target));
    assert_eq!(fs::symlink_metadata(path.join("link")).unwrap().uid(), 5);
    let listed: Vec<_> = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(listed, ["link"]);
    assert!(fs::remove_dir(&path).is_err(), "not empty");
    juicefs(&["fsck", &volume.url, "--path", "/", "-r", "--sync-dir-stat"]);
    fs::remove_file(path.join("link")).unwrap();
    fs::remove_dir(&path).unwrap();
    assert_eq!(read_one(&engine, Key::Lookup(Ino::ROOT, name("ours"))).await, Record::Lookup(None));
    assert_eq!(engine.counter(Counter::TotalInodes).await.unwrap(), 0);
    assert_eq!(engine.counter(Counter::UsedSpace).await.unwrap(), 0);
}

/// As a create does: retried until nothing it read has changed.
async fn make_dir(engine: &RedisEngine, parent: Ino, text: &str, ino: Ino) -> Ino {
    loop {
        let mut txn = engine.begin();
        let keys = [Key::Attr(parent), Key::Entry(parent, name(text))];
        let records = txn.read(&keys).await.unwrap();
        let (Record::Attr(Some(dir)), Record::Entry(None)) = (&records[0], &records[1]) else {
            panic!("{records:?}")
        };
        let mut dir = dir.clone();
        dir.nlink += 1;
        dir.mtime = Timestamp::now();
        dir.ctime = dir.mtime;
        let attr = Attr::new(FileKind::Dir, 0o755, 0, 0, parent, dir.mtime);
        let changes = [
            Change::PutAttr(ino, attr),
            Change::PutEntry(parent, name(text), Entry { kind: FileKind::Dir, ino }),
            Change::PutAttr(parent, dir),
            Change::PutDirStat(ino, DirStat::default()),
            Change::AddUsage { space: 4096, inodes: 1 },
        ];
        match txn.commit(&changes).await {
            Ok(_) => return ino,
            Err(CommitError::Conflict) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_of_both_clients_are_all_kept() {
    const EACH: u64 = 150;
    let volume = GoVolume::mount(&["--trash-days", "0"]);
    let engine = volume.server.engine().await;
    fs::create_dir(volume.path("shared")).unwrap();
    let dir = attr(&engine, Ino::ROOT, "shared").await.0;
    let next = engine.add_counter(Counter::NextInode, 1024).await.unwrap();
    let first = u64::try_from(next).unwrap() - 1024;
    let theirs = std::thread::spawn({
        let shared = volume.path("shared");
        move || {
            for i in 0..EACH {
                fs::create_dir(shared.join(format!("go{i}"))).unwrap();
            }
        }
    });
    for i in 0..EACH {
        make_dir(&engine, dir, &format!("rust{i}"), Ino(first + i)).await;
    }
    theirs.join().unwrap();
    let (_, node) = attr(&engine, Ino::ROOT, "shared").await;
    assert_eq!(u64::from(node.nlink), 2 + 2 * EACH, "no link was lost");
    assert_eq!(fs::read_dir(volume.path("shared")).unwrap().count() as u64, 2 * EACH);
    let inodes = engine.counter(Counter::TotalInodes).await.unwrap();
    assert_eq!(u64::try_from(inodes).unwrap(), 1 + 2 * EACH);
}

fn set_xattr(path: &Path, attribute: &str, value: &[u8]) {
    let script = "import os, sys; os.setxattr(sys.argv[1], sys.argv[2], sys.argv[3].encode())";
    let status = Command::new("python3")
        .args(["-c", script, path.to_str().unwrap(), attribute])
        .arg(String::from_utf8_lossy(value).as_ref())
        .status()
        .unwrap();
    assert!(status.success());
}
