//! A volume for one test and mounts of it, by this client and by the Go client.
//!
//! Dropping a mount unmounts it cleanly and checks its log: a warning or an error that the test did
//! not expect fails the test. After a panic everything is cut off at once instead.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use std::{env, thread};

use super::command::{Finished, poll, run};
use super::juicefs::{self, Volume};
use super::mount::Mount;
use super::redis::RedisServer;
use super::tikv::TikvServer;
use super::timeout::{MOUNTED, within};

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// Time limit of one command on the small volumes of tests.
const LIMIT: Duration = Duration::from_mins(1);

/// The client that mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    Ours,
    Go,
}

impl Client {
    /// Returns the client under test: ours, unless `JFS_TEST_CLIENT=go` selects the other one.
    pub fn tested() -> Self {
        match env::var("JFS_TEST_CLIENT") {
            Ok(name) if name == "go" => Self::Go,
            _ => Self::Ours,
        }
    }
}

/// Returns whether `JFS_TEST_LONG=1` enables long runs, too long for every change.
pub fn long() -> bool {
    env::var_os("JFS_TEST_LONG").is_some_and(|value| value == "1")
}

/// One volume: its metadata, and a folder for objects, caches and mount points.
pub struct Fixture {
    /// The volume as the Go client's tools see it.
    pub go: Volume,
    mounts: AtomicU32,
}

impl Fixture {
    pub fn redis() -> Self {
        Self::at(&RedisServer::shared().fresh_url())
    }

    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite3://{}/meta.db", folder.path().display());
        Self { go: Volume::within(&url, folder), mounts: AtomicU32::new(0) }
    }

    /// With metadata in one region of TiKV.
    pub fn tikv() -> Self {
        Self::at(&TikvServer::shared().fresh_url())
    }

    /// With metadata in several regions of TiKV, led by different stores.
    pub fn split_tikv() -> Self {
        Self::at(&TikvServer::shared().fresh_split_url())
    }

    pub fn at(url: &str) -> Self {
        Self { go: Volume::existing(url), mounts: AtomicU32::new(0) }
    }

    pub fn url(&self) -> &str {
        self.go.url()
    }

    pub fn folder(&self) -> &Path {
        self.go.folder()
    }

    pub fn bucket(&self) -> PathBuf {
        self.folder().join("bucket")
    }

    /// Formats the volume with its objects in a folder; without trash unless `options` enable it.
    #[track_caller]
    pub fn format(&self, options: &[&str]) {
        let bucket = self.bucket();
        let place = ["--storage", "file", "--bucket", bucket.to_str().unwrap()];
        let trash: &[&str] =
            if options.contains(&"--trash-days") { &[] } else { &["--trash-days", "0"] };
        self.tool("format", &[&["volume"][..], &place, trash, options].concat()).ok();
    }

    /// Formats the volume with the defaults and mounts it.
    #[track_caller]
    pub fn start(&self) -> Mounted {
        self.format(&[]);
        self.mount(&[])
    }

    /// Mounts with the client under test. `options` are those of `juicefs mount`.
    #[track_caller]
    pub fn mount(&self, options: &[&str]) -> Mounted {
        self.mount_by(Client::tested(), options)
    }

    /// Mounts without background jobs, so that only the test changes the volume.
    #[track_caller]
    pub fn mount_by(&self, client: Client, options: &[&str]) -> Mounted {
        let mount = match client {
            Client::Go => self.go.mount(options),
            Client::Ours => self.mount_ours(&[&["--no-bgjob"], options].concat()),
        };
        Mounted { mount: Some(mount), client, expected: Mutex::default() }
    }

    /// As [`Fixture::mount`], with background jobs.
    #[track_caller]
    pub fn mount_with_jobs(&self, options: &[&str]) -> Mounted {
        let client = Client::tested();
        let mount = match client {
            Client::Go => self.go.mount_with_jobs(options),
            Client::Ours => self.mount_ours(options),
        };
        Mounted { mount: Some(mount), client, expected: Mutex::default() }
    }

    /// Runs a command of `jfs-mount` that takes the metadata URL first.
    #[track_caller]
    pub fn tool(&self, action: &str, options: &[&str]) -> Finished {
        let mut command = ours();
        command.args([action, self.url()]).args(options);
        run(command, LIMIT)
    }

    /// Asserts that the Go client finds neither errors nor leaked objects in the volume.
    #[track_caller]
    pub fn check(&self) {
        self.go.fsck();
        self.check_blocks();
    }

    /// As [`Fixture::check`], except for the usage of directories: the Go client miscounts some of its
    /// own changes to files of other clients.
    #[track_caller]
    pub fn check_blocks(&self) {
        self.go.run("fsck", &[]).ok();
        let mut command = juicefs::command(&["gc", self.url()]);
        // Otherwise it skips everything younger than an hour.
        command.env("JFS_GC_SKIPPEDTIME", "0");
        let found = run(command, LIMIT).ok();
        let output = format!("{}{}", found.stdout, found.stderr);
        // `scanned 8 objects, 8 valid, 0 pending delete (0 bytes), ... 0 leaked (0 bytes), ...`
        assert!(output.contains(" 0 leaked (0 bytes)"), "{output}");
    }

    fn mount_ours(&self, options: &[&str]) -> Mount {
        let number = self.mounts.fetch_add(1, Ordering::Relaxed);
        let point = self.folder().join(format!("ours{number}"));
        let (cache, log) = (point.with_extension("cache"), point.with_extension("log"));
        let mut command = ours();
        command.args(["mount", "--no-usage-report", "--no-syslog", "--backup-meta", "0"]);
        command.args(["--free-space-ratio", "0.01"]);
        if !options.contains(&"--cache-dir") {
            command.arg("--cache-dir").arg(cache);
        }
        command.args(options).arg(self.url()).arg(&point);
        Mount::start(command, &point, &log)
    }
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Uses this program instead of the one that was built. Only the first call has an effect.
pub fn use_program(path: PathBuf) {
    let _ = PROGRAM.set(path);
}

/// Returns a command that runs the program under test.
pub fn ours() -> Command {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_jfs-mount"));
    let mut command = Command::new(PROGRAM.get_or_init(built));
    command.env("NO_COLOR", "1").env("AWS_EC2_METADATA_DISABLED", "true").env_remove("JFS_LOG");
    // Objects in files need not survive a crash of the machine, as with the Go client; syncing each
    // of them would take most of the time of a test.
    command.env("JFS_FILE_SYNC", "false");
    command
}

/// A mounted volume.
pub struct Mounted {
    /// `None` once it is unmounted.
    mount: Option<Mount>,
    client: Client,
    expected: Mutex<Vec<String>>,
}

impl Mounted {
    /// Returns the path of a name in the mount; `/` and the empty name are the mount point itself.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        let name = name.as_ref();
        self.path().join(name.strip_prefix("/").unwrap_or(name))
    }

    pub fn is_ours(&self) -> bool {
        self.client == Client::Ours
    }

    /// Accepts lines of the log that contain this text.
    pub fn expect(&self, text: &str) {
        self.expected.lock().unwrap().push(text.to_owned());
    }

    /// Returns the unexpected warnings and errors in the log.
    pub fn faults(&self) -> Vec<String> {
        if self.client == Client::Go {
            return Vec::new();
        }
        faults(&self.log(), &self.expected.lock().unwrap())
    }

    /// Unmounts cleanly and checks the log.
    #[track_caller]
    pub fn unmount(mut self) {
        self.close();
    }

    /// Stops the process with SIGTERM, and waits until it has flushed everything and exited.
    #[track_caller]
    pub fn terminate(mut self) {
        let mut mount = self.mount.take().unwrap();
        signal(mount.pid(), nix::sys::signal::Signal::SIGTERM);
        mount.ended();
        self.check_log(&mount.log());
    }

    /// Waits for the process to exit after the test itself has unmounted the volume.
    #[track_caller]
    pub fn ended(mut self) {
        let mut mount = self.mount.take().unwrap();
        mount.ended();
        self.check_log(&mount.log());
    }

    /// Kills the client, as a crash would: nothing is flushed, the session is left behind.
    pub fn kill(mut self) {
        if let Some(mount) = self.mount.take() {
            mount.kill();
        }
    }

    #[track_caller]
    fn close(&mut self) {
        let mut mount = self.mount.take().unwrap();
        mount.close();
        self.check_log(&mount.log());
    }

    #[track_caller]
    fn check_log(&self, log: &str) {
        if self.client == Client::Ours {
            let faults = faults(log, &self.expected.lock().unwrap());
            assert!(faults.is_empty(), "in the log of the mount:\n{}", faults.join("\n"));
        }
    }
}

impl Deref for Mounted {
    type Target = Mount;

    fn deref(&self) -> &Mount {
        self.mount.as_ref().expect("the volume is still mounted")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        match &self.mount {
            Some(mount) if thread::panicking() => {
                let log = faults(&mount.log(), &[]);
                if !log.is_empty() {
                    eprintln!("in the log of {}:\n{}", mount.path().display(), log.join("\n"));
                }
            }
            Some(_) => self.close(),
            None => {}
        }
    }
}

/// Returns the warnings, errors and panics in a log.
fn faults(log: &str, expected: &[String]) -> Vec<String> {
    log.lines()
        .filter(|line| {
            [" WARN ", " ERROR ", "panicked at"].iter().any(|level| line.contains(level))
        })
        .filter(|line| !expected.iter().any(|text| line.contains(text)))
        .map(str::to_owned)
        .collect()
}

pub fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
    nix::sys::signal::kill(pid, signal).unwrap();
}

#[track_caller]
pub fn eventually(what: &str, ready: impl FnMut() -> bool) {
    assert!(poll(PATIENCE, ready), "never happened: {what}");
}

/// Runs a test body with a new fixture, within a time limit.
pub fn with(make: fn() -> Fixture, body: fn(&Fixture)) {
    within(MOUNTED, move || body(&make()));
}

/// Generates tests that run each body, a `fn(&Fixture)`, on Redis and on SQLite, in modules of these
/// names: `on_both! { a_sentence, another_sentence }`.
#[macro_export]
macro_rules! on_both {
    ($($body:ident),* $(,)?) => {
        mod redis {
            $(
                #[test]
                fn $body() {
                    use $crate::support::fixture::{Fixture, with};
                    with(Fixture::redis, super::$body);
                }
            )*
        }
        mod sqlite {
            $(
                #[test]
                fn $body() {
                    use $crate::support::fixture::{Fixture, with};
                    with(Fixture::sqlite, super::$body);
                }
            )*
        }
    };
}
