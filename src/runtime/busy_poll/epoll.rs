//! Finds the epoll descriptor of a runtime, which tokio does not expose.

use std::fs::{read_dir, read_link, read_to_string};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use tokio::net::UnixDatagram;
use tokio::runtime::Runtime;

/// What the links in `/proc/self/fd` of epoll descriptors point to.
const EPOLL_LINK: &str = "anon_inode:[eventpoll]";

/// Returns a duplicate of the epoll descriptor that the threads of `runtime` wait on. `proc` is
/// `/proc/self`.
///
/// Other runtimes and libraries of the process may have epoll descriptors as well. The right one is
/// the one that watches a socket which was just registered with this runtime.
pub fn epoll_of(runtime: &Runtime, proc: &Path) -> Result<OwnedFd, String> {
    let _context = runtime.enter();
    let probe = UnixDatagram::unbound()
        .map_err(|error| format!("cannot register a socket with the runtime: {error}"))?;
    let found = find_watching(probe.as_raw_fd(), proc)?;
    duplicate(found)
}

/// Returns the epoll descriptor of this process that watches `target`.
fn find_watching(target: RawFd, proc: &Path) -> Result<RawFd, String> {
    let dir = proc.join("fd");
    let descriptors =
        read_dir(&dir).map_err(|error| format!("cannot read {}: {error}", dir.display()))?;
    descriptors
        .flatten()
        .filter(|entry| read_link(entry.path()).is_ok_and(|to| to.as_os_str() == EPOLL_LINK))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(|descriptor| watches(*descriptor, target, proc))
        .ok_or_else(|| "no epoll descriptor watches the runtime's sockets".to_owned())
}

/// The kernel lists what an epoll descriptor watches, one `tfd: <descriptor> ...` line for each.
fn watches(epoll: RawFd, target: RawFd, proc: &Path) -> bool {
    let Ok(info) = read_to_string(proc.join(format!("fdinfo/{epoll}"))) else { return false };
    let target = target.to_string();
    info.lines()
        .filter_map(|line| line.strip_prefix("tfd:"))
        .any(|watched| watched.split_whitespace().next() == Some(target.as_str()))
}

#[allow(unsafe_code, reason = "tokio does not lend its descriptor")]
fn duplicate(descriptor: RawFd) -> Result<OwnedFd, String> {
    // SAFETY: it was just found open, and belongs to a runtime that the caller holds.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    borrowed
        .try_clone_to_owned()
        .map_err(|error| format!("cannot duplicate the runtime's epoll descriptor: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn the_epoll_descriptor_of_each_runtime_is_found() {
        let proc = Path::new("/proc/self");
        let build = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (one, two) = (build(), build());
        let (first, second) = (epoll_of(&one, proc).unwrap(), epoll_of(&two, proc).unwrap());
        // A socket of one runtime is watched by its own descriptor only.
        let _context = one.enter();
        let socket = UnixDatagram::unbound().unwrap();
        assert!(watches(first.as_raw_fd(), socket.as_raw_fd(), proc));
        assert!(!watches(second.as_raw_fd(), socket.as_raw_fd(), proc));
    }

    #[test]
    fn without_proc_nothing_is_found() {
        let empty = tempfile::tempdir().unwrap();
        let error = find_watching(5, empty.path()).unwrap_err();
        assert!(error.contains("cannot read") && error.ends_with("(os error 2)"), "{error}");
    }

    #[test]
    fn an_epoll_descriptor_that_does_not_watch_the_target_is_not_taken() {
        let proc = tempfile::tempdir().unwrap();
        for dir in ["fd", "fdinfo"] {
            std::fs::create_dir(proc.path().join(dir)).unwrap();
        }
        for (descriptor, link) in [("3", EPOLL_LINK), ("4", EPOLL_LINK), ("6", "/dev/null")] {
            symlink(link, proc.path().join("fd").join(descriptor)).unwrap();
        }
        let info =
            "pos:\t0\nflags:\t02\ntfd:       55 events:       19 data: 1  pos:0 ino:1 sdev:f\n";
        std::fs::write(proc.path().join("fdinfo/3"), info).unwrap();
        assert_eq!(find_watching(55, proc.path()), Ok(3));
        let error = find_watching(5, proc.path()).unwrap_err();
        assert!(error.contains("no epoll descriptor"), "{error}");
    }
}
