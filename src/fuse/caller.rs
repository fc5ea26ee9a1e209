//! When a caller that got a signal need not wait any longer.
//!
//! The kernel says that there was a signal, not which. Programs do not expect EINTR of mkdir(2) or
//! stat(2), whatever timers and children they have, so only a signal that ends the caller, or asks
//! it to end, counts. Which one it was shows in what is pending: it is delivered only after the
//! answer.

use std::fs;
use std::time::Duration;

use nix::libc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How often a caller is looked at that got a signal. The kernel tells of the first one only.
const LOOK: Duration = Duration::from_millis(50);

/// How long a look may take: the kernel may be busy with the process, and hold its locks.
const PATIENCE: Duration = Duration::from_secs(1);

/// Which signals are pending for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signalled {
    /// One that it does not survive.
    Dies,
    /// One by which it is asked to end and that it handles; or it cannot be seen.
    Asked,
    /// None, or none that matters.
    Other,
}

/// Ends when the caller is to be told EINTR: at once if it dies, and after `patience` if it was
/// asked to end.
pub async fn leaves(interrupted: CancellationToken, pid: u32, patience: Duration) {
    interrupted.cancelled().await;
    let mut asked = None;
    loop {
        match look(pid).await {
            Signalled::Dies => return,
            Signalled::Asked => {
                let since = *asked.get_or_insert_with(Instant::now);
                if since.elapsed() >= patience {
                    return;
                }
            }
            Signalled::Other => {}
        }
        sleep(LOOK).await;
    }
}

/// Looks on a thread that may hang, and not for long.
async fn look(pid: u32) -> Signalled {
    match timeout(PATIENCE, spawn_blocking(move || signalled(pid))).await {
        Ok(Ok(signalled)) => signalled,
        _ => Signalled::Asked,
    }
}

/// What waits for a thread, which is what the kernel calls a process here.
fn signalled(pid: u32) -> Signalled {
    // Of a process in a namespace that this one does not see.
    if pid == 0 {
        return Signalled::Asked;
    }
    match fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => judge(&status),
        Err(_) => Signalled::Dies,
    }
}

fn judge(status: &str) -> Signalled {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    };
    let pending = (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:");
    let survived = mask("SigIgn:") | mask("SigCgt:");
    // A signal that kills is turned into SIGKILL when it comes; only one that dumps core stays.
    if pending & (bit(libc::SIGKILL) | (dumps() & !survived)) != 0 {
        Signalled::Dies
    } else if pending & ends() != 0 {
        Signalled::Asked
    } else {
        Signalled::Other
    }
}

/// By these people and service managers end a process.
const fn ends() -> u64 {
    bit(libc::SIGHUP) | bit(libc::SIGINT) | bit(libc::SIGQUIT) | bit(libc::SIGTERM)
}

const fn dumps() -> u64 {
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

    fn seen(pending: i32, blocked: u64, caught: u64) -> Signalled {
        judge(&format!(
            "Name:\tcat\nSigPnd:\t{:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}\n\
             SigIgn:\t{:016x}\nSigCgt:\t{caught:016x}\n",
            0,
            bit(pending),
            0
        ))
    }

    #[test]
    fn only_signals_that_end_a_process_count() {
        assert_eq!(seen(libc::SIGKILL, 0, 0), Signalled::Dies);
        assert_eq!(seen(libc::SIGABRT, 0, 0), Signalled::Dies);
        assert_eq!(seen(libc::SIGABRT, 0, bit(libc::SIGABRT)), Signalled::Other);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            assert_eq!(seen(signal, 0, bit(signal)), Signalled::Asked);
            assert_eq!(seen(signal, bit(signal), bit(signal)), Signalled::Other);
        }
        for signal in [libc::SIGALRM, libc::SIGCHLD, libc::SIGURG, libc::SIGUSR1, libc::SIGPROF] {
            assert_eq!(seen(signal, 0, bit(signal)), Signalled::Other);
        }
    }

    #[test]
    fn a_process_that_is_gone_waits_for_nothing() {
        // Larger than any process number.
        assert_eq!(signalled(u32::MAX >> 1), Signalled::Dies);
        assert_eq!(signalled(std::process::id()), Signalled::Other);
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_be_seen_is_waited_for_a_while() {
        let token = CancellationToken::new();
        token.cancel();
        let before = Instant::now();
        leaves(token, 0, Duration::from_secs(5)).await;
        assert!(before.elapsed() >= Duration::from_secs(5));
    }
}
