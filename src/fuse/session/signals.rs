//! Decides when a caller that received a signal need not wait any longer.
//!
//! The kernel reports that there was a signal, not which. Programs do not expect EINTR from
//! mkdir(2) or stat(2), whatever timers and children they have, so only a signal that ends the
//! caller, or asks it to end, counts. Which one it was shows in the pending signals: it is
//! delivered only after the reply.

use std::fs;
use std::time::Duration;

use nix::libc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How often to check an interrupted caller. The kernel reports only the first signal.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The longest time for one check: the kernel may be busy with the process, and hold its locks.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// The most severe signal that is pending for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingSignal {
    /// One that it does not survive.
    Fatal,
    /// One that asks it to end and that it handles; or the process cannot be inspected.
    Termination,
    /// None, or an irrelevant one.
    Other,
}

/// Completes when the caller should get EINTR: at once if it dies, and after `patience` if it was
/// asked to end.
pub async fn wait_until_abandoned(interrupted: CancellationToken, pid: u32, patience: Duration) {
    interrupted.cancelled().await;
    let mut terminated_since = None;
    loop {
        match check_signals(pid).await {
            PendingSignal::Fatal => return,
            PendingSignal::Termination => {
                let since = *terminated_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= patience {
                    return;
                }
            }
            PendingSignal::Other => {}
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Checks the signals on a thread that may hang, with a timeout.
async fn check_signals(pid: u32) -> PendingSignal {
    match timeout(CHECK_TIMEOUT, spawn_blocking(move || pending_signal(pid))).await {
        Ok(Ok(signal)) => signal,
        _ => PendingSignal::Termination,
    }
}

/// Reads the pending signals of a thread, which the kernel calls a process here.
fn pending_signal(pid: u32) -> PendingSignal {
    // The process is in a PID namespace that this one does not see.
    if pid == 0 {
        return PendingSignal::Termination;
    }
    match fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => classify(&status),
        Err(_) => PendingSignal::Fatal,
    }
}

fn classify(status: &str) -> PendingSignal {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    };
    let pending = (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:");
    let survived = mask("SigIgn:") | mask("SigCgt:");
    // The kernel turns a fatal signal into SIGKILL on arrival, unless it dumps core.
    if pending & (bit(libc::SIGKILL) | (core_dump_signals() & !survived)) != 0 {
        PendingSignal::Fatal
    } else if pending & terminating_signals() != 0 {
        PendingSignal::Termination
    } else {
        PendingSignal::Other
    }
}

/// The signals by which users and service managers end a process.
const fn terminating_signals() -> u64 {
    bit(libc::SIGHUP) | bit(libc::SIGINT) | bit(libc::SIGQUIT) | bit(libc::SIGTERM)
}

const fn core_dump_signals() -> u64 {
    bit(libc::SIGQUIT)
        | bit(libc::SIGILL)
        | bit(libc::SIGTRAP)
        | bit(libc::SIGABRT)
        | bit(libc::SIGBUS)
        | bit(libc::SIGFPE)
        | bit(libc::SIGSEGV)
        | bit(libc::SIGXCPU)
        | bit(libc::SIGXFSZ)
        | bit(libc::SIGSYS)
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pending: i32, blocked: u64, caught: u64) -> PendingSignal {
        classify(&format!(
            "Name:\tcat\nSigPnd:\t{:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}\n\
             SigIgn:\t{:016x}\nSigCgt:\t{caught:016x}\n",
            0,
            bit(pending),
            0
        ))
    }

    #[test]
    fn only_signals_that_end_a_process_count() {
        assert_eq!(seen(libc::SIGKILL, 0, 0), PendingSignal::Fatal);
        assert_eq!(seen(libc::SIGABRT, 0, 0), PendingSignal::Fatal);
        assert_eq!(seen(libc::SIGABRT, 0, bit(libc::SIGABRT)), PendingSignal::Other);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            assert_eq!(seen(signal, 0, bit(signal)), PendingSignal::Termination);
            assert_eq!(seen(signal, bit(signal), bit(signal)), PendingSignal::Other);
        }
        for signal in [libc::SIGALRM, libc::SIGCHLD, libc::SIGURG, libc::SIGUSR1, libc::SIGPROF] {
            assert_eq!(seen(signal, 0, bit(signal)), PendingSignal::Other);
        }
    }

    #[test]
    fn a_process_that_is_gone_need_not_be_waited_for() {
        // Larger than any process ID.
        assert_eq!(pending_signal(u32::MAX >> 1), PendingSignal::Fatal);
        assert_eq!(pending_signal(std::process::id()), PendingSignal::Other);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_cannot_be_inspected_is_waited_for_a_while() {
        let token = CancellationToken::new();
        token.cancel();
        let before = Instant::now();
        wait_until_abandoned(token, 0, Duration::from_secs(5)).await;
        assert!(before.elapsed() >= Duration::from_secs(5));
    }
}
