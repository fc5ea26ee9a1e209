//! A mounted synthetic file system that is always gone in the end.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jfs::fuse::{End, Mount, MountOptions, Session, Setup, Unmount, Wishes, unmount};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::command::{poll, wait};
use crate::connection::Connection;
use crate::synth::{Served, Synth};
use crate::timeout::{has_limit, on_timeout};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Rig {
    // In the order of their end: no request may come when nobody is left to answer it.
    mount: Mount,
    pub session: Session,
    pub synth: Arc<Synth>,
    pub runtime: Runtime,
    _dir: TempDir,
}

impl Rig {
    pub fn new() -> Self {
        Self::wishing(&Wishes::default())
    }

    pub fn wishing(wishes: &Wishes) -> Self {
        let options = MountOptions { max_read: wishes.max_io, ..MountOptions::new("test") };
        Self::with(&options, wishes)
    }

    pub fn with(options: &MountOptions, wishes: &Wishes) -> Self {
        assert!(has_limit(), "a test that mounts runs inside timeout::within");
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap().join("mount");
        std::fs::create_dir(&point).unwrap();
        let late = point.clone();
        // Cutting the connection frees whoever hangs, in this process, too.
        on_timeout(move || drop(unmount(&late, Unmount::Force)));
        let synth = Synth::new();
        let (mount, device) = Mount::new(&point, options).unwrap();
        let handle = runtime.handle().clone();
        let setup = Setup::default();
        let served = Arc::new(Served(Arc::clone(&synth)));
        let session = Session::start(device, served, wishes, &setup, handle).unwrap();
        Self { mount, session, synth, runtime, _dir: dir }
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

    /// Makes a file with this content, without the kernel.
    pub fn file(&self, name: &str, content: &[u8]) -> u64 {
        self.synth.add_file(name, content)
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
    pub fn end(&self) -> End {
        let end = async { tokio::time::timeout(PATIENCE, self.session.ended()).await };
        self.runtime.block_on(end).expect("the session did not end")
    }

    /// Waits until the kernel has been told everything.
    pub fn settle(&self) {
        self.runtime.block_on(self.session.notifier().delivered());
    }
}

impl Drop for Rig {
    /// A program that another test just started may still have copies of this one's descriptors, and
    /// close its files only now: it would wait for an answer from a session that is gone, and with
    /// the copy of `/dev/fuse` keep the connection that it waits for.
    fn drop(&mut self) {
        if let Some(connection) = Connection::of(self.mount.point()) {
            connection.abort();
        }
    }
}

/// A child that is killed if the test forgets it.
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

    /// Waits for its end; answers whether it succeeded, and what it wrote.
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
