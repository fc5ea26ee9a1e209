//! A mounted file system in memory that is always unmounted at the end.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jfs::fuse::{
    InitOptions, Mount, MountOptions, Session, SessionEnd, SessionOptions, Unmount, unmount,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::command::{poll, wait};
use crate::connection::Connection;
use crate::memory_fs::{MemoryFileSystem, MemoryFs};
use crate::timeout::{has_limit, on_timeout};

/// Longer than any operation takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Fixture {
    // In the order of dropping: no request may arrive when nobody is left to handle it.
    mount: Mount,
    pub session: Session,
    pub fs: Arc<MemoryFs>,
    pub runtime: Runtime,
    _dir: TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with_init(&InitOptions::default())
    }

    pub fn with_init(init: &InitOptions) -> Self {
        let options = MountOptions { max_read: init.max_io, ..MountOptions::new("test") };
        Self::with(&options, init)
    }

    pub fn with(options: &MountOptions, init: &InitOptions) -> Self {
        assert!(has_limit(), "a test that mounts runs inside timeout::within");
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap().join("mount");
        std::fs::create_dir(&point).unwrap();
        let late = point.clone();
        // Aborting the connection frees processes that hang, including this one.
        on_timeout(move || drop(unmount(&late, Unmount::Force)));
        let fs = MemoryFs::new();
        let (mount, device) = Mount::new(&point, options).unwrap();
        let handle = runtime.handle().clone();
        let setup = SessionOptions::default();
        let served = Arc::new(MemoryFileSystem(Arc::clone(&fs)));
        let session = Session::start(device, served, init, &setup, handle).unwrap();
        Self { mount, session, fs, runtime, _dir: dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.mount.point().join(name)
    }

    pub fn point(&self) -> &Path {
        self.mount.point()
    }

    pub fn mount(&mut self) -> &mut Mount {
        &mut self.mount
    }

    /// Creates a file with this content, without the kernel.
    pub fn file(&self, name: &str, content: &[u8]) -> u64 {
        self.fs.add_file(name, content)
    }

    pub fn open(&self, name: &str) -> File {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(name))
            .unwrap()
    }

    /// Waits for the end of the session.
    #[track_caller]
    pub fn end(&self) -> SessionEnd {
        let end = async { tokio::time::timeout(PATIENCE, self.session.ended()).await };
        self.runtime.block_on(end).expect("the session did not end")
    }

    /// Waits until all notifications are delivered.
    pub fn settle(&self) {
        self.runtime.block_on(self.session.notifier().delivered());
    }
}

impl Drop for Fixture {
    /// A program that another test just started may still have copies of this one's descriptors,
    /// and close its files only now: it would wait for a reply from a session that is gone, and its
    /// copy of `/dev/fuse` would keep alive the connection that it waits for.
    fn drop(&mut self) {
        if let Some(connection) = Connection::of(self.mount.point()) {
            connection.abort();
        }
    }
}

/// A child process that is killed when dropped.
pub struct Process(Option<Child>);

impl Process {
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().unwrap()))
    }

    pub fn signal(&self, name: &str) {
        let id = self.0.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().unwrap();
        assert!(sent.success());
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.0.as_mut().unwrap().try_wait(), Ok(None))
    }

    /// Waits for its end. Returns whether it succeeded, and its output.
    #[track_caller]
    pub fn finish(mut self) -> (bool, Vec<u8>) {
        let mut stdout = self.0.as_mut().unwrap().stdout.take().unwrap();
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            stdout.read_to_end(&mut all).map(|_| all)
        });
        let status = wait(self.0.as_mut().unwrap(), PATIENCE).expect("the process does not end");
        (status.success(), reader.join().unwrap().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = wait(child, Duration::from_secs(5));
        }
    }
}

#[track_caller]
pub fn eventually(what: &str, ready: impl FnMut() -> bool) {
    assert!(poll(PATIENCE, ready), "never happened: {what}");
}
