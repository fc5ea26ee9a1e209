//! A mount under a keeper, and how its server is killed and replaced.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::minor;
use nix::unistd::Pid;

use crate::support::command::poll;
use crate::support::fixture::{Fixture, PATIENCE, ours};
use crate::support::mount::Mount;

/// Lines that every server writes to the log once it serves.
const SERVING: &str = "is mounted at";

/// What a server writes to the log that finds the requests of the one before in memory.
const FOUND: &str = "requests that another process received are handled again";

/// If set, the kernel is taken for one that cannot send requests again. Set for the test program, all
/// of its tests run so.
const NO_RESEND_VARIABLE: &str = "JFS_NO_RESEND";

thread_local! {
    static HAS_RESEND: Cell<bool> = Cell::new(env::var_os(NO_RESEND_VARIABLE).is_none());
}

/// Runs a test body as if the kernel could not send requests again, as before Linux 6.9.
pub fn masked(body: impl FnOnce()) {
    let has_resend = HAS_RESEND.replace(false);
    body();
    HAS_RESEND.set(has_resend);
}

/// Generates tests that run each body, a `fn(&Fixture)`, as on a kernel that cannot send requests
/// again.
#[macro_export]
macro_rules! without_resend {
    ($($body:ident),* $(,)?) => {
        mod without_resend {
            $(
                #[test]
                fn $body() {
                    use $crate::kept_mount::masked;
                    use $crate::support::fixture::{Fixture, with};
                    with(Fixture::redis, |fixture| masked(|| super::$body(fixture)));
                }
            )*
        }
    };
}

pub struct KeptMount {
    mount: Mount,
    has_resend: bool,
    /// Its number, which is the minor number of its device.
    connection: u64,
}

impl KeptMount {
    /// Mounts under a keeper.
    #[track_caller]
    pub fn start(fixture: &Fixture, options: &[&str]) -> Self {
        let folder = fixture.folder();
        let (point, log) = (folder.join("kept"), folder.join("kept.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_jfs-keeper"));
        command.arg("--socket").arg(folder.join("keeper/k.sock")).arg("--");
        let server = ours();
        for (name, value) in server.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let has_resend = HAS_RESEND.get();
        if !has_resend {
            command.env(NO_RESEND_VARIABLE, "1");
        }
        command.arg(server.get_program());
        command.args(["mount", "--no-usage-report", "--no-syslog", "--backup-meta", "0"]);
        command.args(["--free-space-ratio", "0.01"]);
        command.args(["--no-bgjob", "--metrics", "127.0.0.1:0", "--cache-dir"]);
        command.arg(folder.join("kept.cache")).args(options).arg(fixture.url()).arg(&point);
        let mount = Mount::start(command, &point, &log);
        let mut kept = Self { mount, has_resend, connection: 0 };
        kept.wait_for_servers(1);
        kept.connection = minor(fs::metadata(kept.path()).unwrap().dev());
        kept
    }

    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    pub fn log(&self) -> String {
        self.mount.log()
    }

    /// How many servers have served it so far.
    pub fn servers(&self) -> usize {
        self.log().matches(SERVING).count()
    }

    #[track_caller]
    pub fn wait_for_servers(&self, count: usize) {
        let serves = || self.servers() >= count;
        assert!(poll(PATIENCE, serves), "no server {count}:\n{}", self.log());
    }

    /// Kills the server, as a crash would. The keeper starts another.
    #[track_caller]
    pub fn kill_server(&self) {
        self.kill_server_and(|| {});
    }

    /// Does something while no server is there.
    #[track_caller]
    pub fn kill_server_and(&self, meanwhile: impl FnOnce()) {
        let before = self.servers();
        kill(self.server(), Signal::SIGKILL).unwrap();
        meanwhile();
        self.wait_for_servers(before + 1);
    }

    /// Has the keeper replace the server by a new one.
    #[track_caller]
    pub fn replace_server(&self) {
        let before = self.servers();
        kill(Pid::from_raw(self.mount.pid().try_into().unwrap()), Signal::SIGHUP).unwrap();
        self.wait_for_servers(before + 1);
    }

    /// Replaces and kills servers in turn while something else is done.
    #[track_caller]
    pub fn disturb(&self, rounds: u32, seed: u64) {
        let mut state = seed | 1;
        for round in 0..rounds {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            thread::sleep(Duration::from_millis(60 + (state >> 33) % 200));
            if round % 4 == 3 { self.replace_server() } else { self.kill_server() }
        }
    }

    /// The sessions that its servers have started or resumed.
    pub fn sessions(&self) -> Vec<String> {
        let log = self.log();
        let words = log.lines().filter(|line| line.contains("session started"));
        let sids = words.filter_map(|line| {
            line.split_whitespace().find_map(|word| word.strip_prefix("sid=")).map(str::to_owned)
        });
        let mut sids: Vec<String> = sids.collect();
        sids.dedup();
        sids
    }

    #[track_caller]
    pub fn unmount(self) {
        let is_answered = || self.waiting() == 0;
        assert!(poll(PATIENCE, is_answered), "a request has no reply:\n{}", self.log());
        let is_found = self.log().contains(FOUND);
        assert_eq!(is_found, !self.has_resend && self.servers() > 1, "{}", self.log());
        self.mount.unmount();
    }

    /// How many requests have no reply, says the kernel. Asking must not send one, so the device is
    /// not found through the mount.
    #[track_caller]
    pub fn waiting(&self) -> u32 {
        let waiting = format!("/sys/fs/fuse/connections/{}/waiting", self.connection);
        fs::read_to_string(waiting).unwrap().trim().parse().unwrap()
    }

    /// The process that serves.
    #[track_caller]
    fn server(&self) -> Pid {
        let pid = self.mount.pid();
        let until = Instant::now() + PATIENCE;
        loop {
            let children =
                fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let mut words = children.split_whitespace();
            if let (Some(only), None) = (words.next(), words.next()) {
                return Pid::from_raw(only.parse().unwrap());
            }
            assert!(Instant::now() < until, "not one server:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }
}
