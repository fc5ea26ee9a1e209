//! The launcher: runs the driver as a child process, and starts it again at once when it crashes.
//!
//! kubelet restarts a container that crashes repeatedly only after minutes. Until then, everything that
//! uses a mount of the node waits.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::program::Signals;
use crate::error::{Error, Result};

/// Set in the environment of the child.
const LAUNCHED: &str = "JFS_CSI_LAUNCHED";
/// The exit status of a Rust program that has panicked.
const PANICKED: i32 = 101;
/// The delay before the first restart; it doubles with each further crash.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// A driver that has run this long counts as healthy.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);
/// After more crashes in a row, the container ends, and kubelet decides.
const MAX_CRASHES: u32 = 8;

/// Whether this process was started by a launcher. Such a process stops when its launcher dies.
pub fn is_launched() -> bool {
    let launched = std::env::var_os(LAUNCHED).is_some();
    if launched && let Err(error) = prctl::set_pdeathsig(Signal::SIGTERM) {
        warn!(%error, "this process will not notice the end of its launcher");
    }
    launched
}

/// Runs the driver until it ends by itself or by a signal to this process.
pub fn run() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let launched = match runtime {
        Ok(runtime) => runtime.block_on(launch()),
        Err(error) => Err(Error::internal("starting the launcher", error)),
    };
    launched.unwrap_or_else(|error| {
        error!("{error}");
        ExitCode::FAILURE
    })
}

async fn launch() -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let mut crashes = Crashes::default();
    loop {
        let started = Instant::now();
        let mut child = start()?;
        let status = tokio::select! {
            status = child.wait() => ended(status)?,
            signal = signals.next() => {
                info!("{signal}: stopping the driver");
                return Ok(exit_code(stop(child, &mut signals).await?));
            }
        };
        let Some(delay) = crashes.delay(status, started.elapsed()) else {
            return Ok(exit_code(status));
        };
        error!(?delay, "the driver has crashed ({status}): starting it again");
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            signal = signals.next() => {
                info!("{signal}: not starting the driver again");
                return Ok(exit_code(status));
            }
        }
    }
}

fn start() -> Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    let mut words = std::env::args_os();
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words).env(LAUNCHED, "1");
    command.spawn().map_err(|error| Error::internal("starting the driver", error))
}

/// Passes signals on until the driver has ended.
async fn stop(mut child: Child, signals: &mut Signals) -> Result<ExitStatus> {
    loop {
        if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
            // It may have ended already.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        tokio::select! {
            status = child.wait() => return ended(status),
            _ = signals.next() => {}
        }
    }
}

fn ended(status: std::io::Result<ExitStatus>) -> Result<ExitStatus> {
    status.map_err(|error| Error::internal("waiting for the driver", error))
}

/// The exit code of the child, or that of a shell for the signal that ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Counts crashes in a row.
#[derive(Debug, Default)]
struct Crashes {
    in_a_row: u32,
}

impl Crashes {
    /// Returns when to start the driver again; `None` if it ended by itself, or crashes all the time.
    fn delay(&mut self, status: ExitStatus, uptime: Duration) -> Option<Duration> {
        if status.signal().is_none() && status.code() != Some(PANICKED) {
            return None;
        }
        if uptime >= HEALTHY_AFTER {
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        let delay = FIRST_DELAY.saturating_mul(1 << (self.in_a_row - 1).min(10)).min(LONGEST_DELAY);
        (self.in_a_row <= MAX_CRASHES).then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: i32 = 9;

    #[test]
    fn a_driver_that_ends_by_itself_is_not_started_again() {
        let mut crashes = Crashes::default();
        for code in [0, 1, 2] {
            let status = ExitStatus::from_raw(code << 8);
            assert_eq!(crashes.delay(status, Duration::ZERO), None);
        }
    }

    #[test]
    fn a_driver_that_is_killed_or_panics_is_started_again() {
        for status in [KILLED, PANICKED << 8] {
            let delay = Crashes::default().delay(ExitStatus::from_raw(status), Duration::ZERO);
            assert_eq!(delay, Some(FIRST_DELAY));
        }
    }

    #[test]
    fn the_delay_grows_until_the_container_ends() {
        let mut crashes = Crashes::default();
        let mut delays = Vec::new();
        while let Some(delay) = crashes.delay(ExitStatus::from_raw(KILLED), Duration::ZERO) {
            delays.push(delay);
        }
        assert_eq!(delays.len(), MAX_CRASHES as usize);
        assert!(delays.is_sorted(), "{delays:?}");
        assert_eq!(delays.last(), Some(&LONGEST_DELAY));
    }

    #[test]
    fn crashes_of_a_driver_that_was_healthy_do_not_add_up() {
        let mut crashes = Crashes::default();
        for _ in 0..2 * MAX_CRASHES {
            let delay = crashes.delay(ExitStatus::from_raw(KILLED), HEALTHY_AFTER);
            assert_eq!(delay, Some(FIRST_DELAY));
        }
    }
}
