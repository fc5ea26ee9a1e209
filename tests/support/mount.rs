//! A mount by a client that runs in the foreground; always removed at the end.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use super::command::{kill_group, poll, wait};
pub use super::connection::is_mounted;
use super::connection::{Connection, cut};
use super::timeout::{has_limit, on_timeout};

const START: Duration = Duration::from_mins(1);
const UNMOUNT: Duration = Duration::from_mins(1);

/// A script that ends the client and its mount if this program ends without doing so.
const KEEPER: &str = r#"
    read -r word
    [ "$word" = done ] && exit
    kill -KILL "-$1" 2>/dev/null
    umount -l "$2" 2>/dev/null
"#;

/// A mounted volume; unmounted when dropped, by force if necessary.
pub struct Mount {
    point: PathBuf,
    log: PathBuf,
    /// `None` once it has exited.
    client: Option<Child>,
    connection: Option<Connection>,
    keeper: Child,
}

impl Mount {
    /// Starts `command`, which must mount at `point` and stay in the foreground, and waits until
    /// the kernel shows the mount.
    #[track_caller]
    pub fn start(mut command: Command, point: &Path, log: &Path) -> Self {
        // Check before starting anything that would not be ended.
        assert!(has_limit(), "a test that mounts must run inside timeout::within");
        fs::create_dir_all(point).unwrap();
        // As in the mount table.
        let point = point.canonicalize().unwrap();
        let into = File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(into.try_clone().unwrap()).stderr(into);
        let mut client = command.process_group(0).spawn().unwrap();
        let group = client.id();
        let keeper = keeper(group, &point).inspect_err(|_| kill_group(&mut client)).unwrap();
        let late = point.clone();
        on_timeout(move || {
            // First of all, to release processes that hang, including a client that hangs in its own mount.
            cut(&late);
            let _ = Command::new("sh").args(["-c", &format!("kill -KILL -{group}")]).status();
            cut(&late);
        });
        let log = log.to_owned();
        let mut mount = Self { point, log, client: Some(client), connection: None, keeper };
        // Polled often, since some callers measure the time.
        let deadline = Instant::now() + START;
        let mut is_up = || is_mounted(&mount.point) || mount.has_ended();
        while !is_up() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        mount.connection = Connection::of(&mount.point);
        assert!(mount.connection.is_some(), "no mount; log of the client:\n{}", mount.log());
        mount
    }

    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Returns the PID of the client.
    pub fn pid(&self) -> u32 {
        self.client.as_ref().unwrap().id()
    }

    /// Returns the log of the client.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Unmounts cleanly: everything is flushed and the session is closed.
    #[track_caller]
    pub fn unmount(mut self) {
        self.close();
    }

    /// As [`Mount::unmount`]; may only be called once.
    #[track_caller]
    pub fn close(&mut self) {
        let gone = || match umount2(&self.point, MntFlags::empty()) {
            Ok(()) => true,
            // The kernel may still be releasing a file that was just closed.
            Err(Errno::EBUSY) => false,
            Err(error) => panic!("umount {}: {error}", self.point.display()),
        };
        assert!(poll(UNMOUNT, gone), "{} is still busy", self.point.display());
        self.ended();
    }

    /// Waits for a client that is stopping to exit.
    #[track_caller]
    pub fn ended(&mut self) {
        let mut client = self.client.take().unwrap();
        let Some(status) = wait(&mut client, UNMOUNT) else {
            self.client = Some(client);
            self.end();
            panic!("the client did not exit within {UNMOUNT:?}:\n{}", self.log());
        };
        self.end();
        assert!(status.success(), "the client exited with {status}:\n{}", self.log());
    }

    /// Kills the client, as a crash would: nothing is flushed, the session is left behind.
    pub fn kill(mut self) {
        if let Some(mut client) = self.client.take() {
            kill_group(&mut client);
        }
        self.end();
    }

    pub fn has_ended(&mut self) -> bool {
        self.client.as_mut().is_none_or(|client| !matches!(client.try_wait(), Ok(None)))
    }

    /// Removes everything, in whatever state it is.
    fn end(&mut self) {
        if let Some(mut client) = self.client.take() {
            if let Some(connection) = &self.connection {
                connection.abort();
            }
            kill_group(&mut client);
        }
        cut(&self.point);
        // The keeper cleans up if its pipe is closed without a line.
        if let Some(mut pipe) = self.keeper.stdin.take() {
            let _ = std::io::Write::write_all(&mut pipe, b"done\n");
        }
        let _ = self.keeper.wait();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(client) = &mut self.client
            && !thread::panicking()
        {
            let _ = umount2(&self.point, MntFlags::MNT_DETACH);
            if wait(client, Duration::from_secs(5)).is_some() {
                self.client = None;
            }
        }
        self.end();
    }
}

fn keeper(group: u32, point: &Path) -> std::io::Result<Child> {
    Command::new("sh")
        .args(["-c", KEEPER, "keeper", &group.to_string()])
        .arg(point)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A process group of its own, so that a signal to the group of this program spares the keeper.
        .process_group(0)
        .spawn()
}
