//! Locks of both clients: each respects and waits for the locks of the other.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use crate::support::juicefs::Volume;
use crate::support::redis::RedisServer;
use crate::support::timeout::{MOUNTED, within};
use jfs::Error;
use jfs::meta::record::LockKind::{Read, Write};
use jfs::meta::record::PlockRange;
use jfs::meta::{Ino, LockOwner, Meta, Options, Registration};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use tempfile::TempDir;

const OWNER: LockOwner = LockOwner(0xFFFF_0000_0000_0001);
/// Longer than the polling interval of either client.
const SOON: Duration = Duration::from_secs(5);

/// A file on a mount of the Go client, and the same file in our client.
struct Shared {
    file: File,
    ino: Ino,
    meta: Arc<Meta>,
}

impl Shared {
    async fn open(url: &str, root: &std::path::Path) -> Self {
        let path = root.join("file");
        fs::write(&path, "0123456789").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let ino = Ino(file.metadata().unwrap().ino());
        let options = Options { no_background_jobs: true, ..Options::default() };
        let meta = Meta::connect(url, options).await.unwrap();
        meta.start(Registration::New).await.unwrap();
        Self { file, ino, meta }
    }

    async fn flock(&self, block: bool) -> Result<(), Error> {
        let lock = self.meta.flock(self.ino, OWNER, Some(Write), block);
        tokio::time::timeout(SOON, lock).await.expect("waits for ever")
    }

    async fn plock(&self, start: u64, end: u64, block: bool) -> Result<(), Error> {
        let lock = self.meta.set_plock(self.ino, OWNER, Some(Write), start..=end, 7, block);
        tokio::time::timeout(SOON, lock).await.expect("waits for ever")
    }

    /// Requests a lock on a range from the Go client.
    fn go_plock(&self, kind: libc::c_int, start: i64, len: i64) -> nix::Result<()> {
        fcntl(&self.file, FcntlArg::F_SETLK(&range(kind, start, len))).map(drop)
    }

    fn go_conflict(&self, start: i64, len: i64) -> libc::flock {
        let mut found = range(libc::F_WRLCK, start, len);
        fcntl(&self.file, FcntlArg::F_GETLK(&mut found)).unwrap();
        found
    }
}

fn range(kind: libc::c_int, start: i64, len: i64) -> libc::flock {
    let (l_type, l_whence) = (kind.try_into().unwrap(), libc::SEEK_SET.try_into().unwrap());
    libc::flock { l_type, l_whence, l_start: start, l_len: len, l_pid: 0 }
}

async fn flocks(shared: Shared) {
    shared.file.lock().unwrap();
    assert!(matches!(shared.flock(false).await, Err(Error::WouldBlock)));
    let (ours, ()) = tokio::join!(shared.flock(true), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        shared.file.unlock().unwrap();
    });
    ours.unwrap();

    assert!(matches!(shared.file.try_lock(), Err(TryLockError::WouldBlock)));
    let go = shared.file.try_clone().unwrap();
    let waiting = tokio::task::spawn_blocking(move || go.lock());
    tokio::time::sleep(Duration::from_millis(100)).await;
    shared.meta.flock(shared.ino, OWNER, None, false).await.unwrap();
    tokio::time::timeout(SOON, waiting).await.expect("waits for ever").unwrap().unwrap();

    // Readers share a lock.
    shared.file.lock_shared().unwrap();
    shared.meta.flock(shared.ino, OWNER, Some(Read), false).await.unwrap();
    assert!(matches!(shared.file.try_lock(), Err(TryLockError::WouldBlock)));
}

async fn ranges(shared: Shared) {
    shared.go_plock(libc::F_WRLCK, 0, 5).unwrap();
    assert!(matches!(shared.plock(4, 9, false).await, Err(Error::WouldBlock)));
    let found = shared.meta.plock(shared.ino, OWNER, Write, 0..=PlockRange::OPEN_END).await;
    assert_eq!(found.unwrap(), Some(PlockRange { kind: Write, pid: 0, start: 0, end: 4 }));
    shared.plock(5, 9, false).await.unwrap();
    let (ours, ()) = tokio::join!(shared.plock(3, 4, true), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        shared.go_plock(libc::F_UNLCK, 2, 3).unwrap();
    });
    ours.unwrap();

    // Length 0 means to the end of the file.
    assert_eq!(shared.go_plock(libc::F_RDLCK, 3, 0), Err(Errno::EAGAIN));
    let found = shared.go_conflict(0, 0);
    assert_eq!((found.l_type.into(), found.l_start, found.l_len), (libc::F_WRLCK, 3, 7));
    shared.meta.set_plock(shared.ino, OWNER, None, 0..=5, 7, false).await.unwrap();
    shared.go_plock(libc::F_WRLCK, 2, 4).unwrap();
    assert_eq!(shared.go_plock(libc::F_WRLCK, 2, 5), Err(Errno::EAGAIN));
}

async fn a_closed_session(shared: Shared) {
    shared.flock(false).await.unwrap();
    shared.plock(0, 9, false).await.unwrap();
    shared.meta.close().await.unwrap();
    shared.file.try_lock().unwrap();
    shared.go_plock(libc::F_WRLCK, 0, 0).unwrap();
}

fn on_sqlite<F: Future<Output = ()> + 'static>(body: fn(Shared) -> F) {
    within(MOUNTED, move || {
        let folder = TempDir::new().unwrap();
        run(&format!("sqlite3://{}/meta.db", folder.path().display()), body);
    });
}

fn on_redis<F: Future<Output = ()> + 'static>(body: fn(Shared) -> F) {
    within(MOUNTED, move || run(&RedisServer::shared().fresh_url(), body));
}

/// Runs the body on a new volume that both clients have open.
fn run<F: Future<Output = ()>>(url: &str, body: fn(Shared) -> F) {
    let volume = Volume::format(url, &[]);
    let mount = volume.mount(&[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { body(Shared::open(url, mount.path()).await).await });
    mount.unmount();
}

#[test]
fn flocks_exclude_the_other_client_on_sqlite() {
    on_sqlite(flocks);
}

#[test]
fn flocks_exclude_the_other_client_on_redis() {
    on_redis(flocks);
}

#[test]
fn ranges_exclude_the_other_client_on_sqlite() {
    on_sqlite(ranges);
}

#[test]
fn ranges_exclude_the_other_client_on_redis() {
    on_redis(ranges);
}

#[test]
fn a_closed_session_leaves_no_locks_to_the_other_client_on_sqlite() {
    on_sqlite(a_closed_session);
}

#[test]
fn a_closed_session_leaves_no_locks_to_the_other_client_on_redis() {
    on_redis(a_closed_session);
}
