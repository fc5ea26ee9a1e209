//! The error type of the library, and its mapping to errno.
//!
//! Variants say what is wrong. "Not found" and the like are normal results, not faults: they are never
//! logged. An error for which [`Error::is_fault`] is true is logged once, where it is handled.

use std::fmt;

use nix::errno::Errno;
use tokio::task::JoinError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("no such file or directory")]
    NotFound,
    #[error("file exists")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("directory not empty")]
    NotEmpty,
    #[error("operation not permitted")]
    NotPermitted,
    #[error("permission denied")]
    AccessDenied,
    #[error("invalid argument")]
    Invalid,
    #[error("file name too long")]
    NameTooLong,
    #[error("file too large")]
    TooLarge,
    #[error("no space left on volume")]
    NoSpace,
    #[error("disk quota exceeded")]
    QuotaExceeded,
    #[error("read-only file system")]
    ReadOnly,
    #[error("no such attribute")]
    NoAttribute,
    #[error("operation not supported")]
    NotSupported,
    #[error("resource temporarily unavailable")]
    WouldBlock,
    #[error("interrupted")]
    Interrupted,
    #[error("bad file handle")]
    BadHandle,
    #[error("too many links")]
    TooManyLinks,
    #[error("broken pipe")]
    BrokenPipe,
    #[error("result too large for the buffer")]
    OutOfRange,
    #[error("no such device or address")]
    NoSuchAddress,
    #[error("inappropriate ioctl")]
    NotTty,
    #[error("too many open files")]
    TooManyOpen,
    /// The system has no memory for this many bytes.
    #[error("no memory for {0} bytes")]
    NoMemory(usize),

    /// An option, an address or a setting is invalid.
    #[error("{0}")]
    BadInput(String),
    /// The policy of this driver does not allow it. The text names the flag that would.
    #[error("{0}")]
    Forbidden(String),
    /// A limit of this node is reached. The text names the flag that sets it.
    #[error("{0}")]
    Exhausted(String),
    /// This client must not use the volume: its metadata is newer, its setting excludes this version, or
    /// it is another volume.
    #[error("{0}")]
    Refused(String),
    /// The server could not be reached or stopped answering. `place` is its address without the
    /// password.
    #[error("{place}: {cause}")]
    Unreachable { place: String, cause: String },
    /// The server returned an error.
    #[error("{place}: {cause}")]
    Engine { place: String, cause: String },
    /// A stored record does not decode.
    #[error("damaged record {record}: {cause}")]
    Damaged { record: String, cause: String },
    /// The object store failed, or returned something that is not the object.
    #[error("{place}: cannot {action} {key}: {cause}")]
    Storage { place: String, action: &'static str, key: String, cause: String },
    /// The object store does not know the access key, or does not permit it the request.
    #[error("{place}: cannot {action} {key}: {cause}")]
    Denied { place: String, action: &'static str, key: String, cause: String },
    /// A block that metadata refers to is not in the object store.
    #[error("{place}: block {key} does not exist")]
    MissingBlock { place: String, key: String },
    /// A transaction conflicted more often than any real contention explains.
    #[error("gave up on {0} after too many conflicts")]
    Contended(&'static str),
    /// A commit was sent, its reply was lost, and reading the records did not show whether it took
    /// effect.
    #[error("{place}: the outcome of {what} is unknown: {cause}")]
    Unknown { place: String, what: &'static str, cause: String },
    /// Data that a write had accepted is gone: the process that served the mount died before it was
    /// stored.
    #[error("written data was lost when the process that served the mount died")]
    WritesLost,
    /// A defect of this program: a task panicked, or an invariant does not hold.
    #[error("internal error while {action}: {cause}")]
    Internal { action: &'static str, cause: String },
}

impl Error {
    pub fn bad_input(what: impl fmt::Display) -> Self {
        Self::BadInput(what.to_string())
    }

    pub fn damaged(record: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self::Damaged { record: record.to_string(), cause: cause.to_string() }
    }

    pub fn internal(action: &'static str, cause: impl fmt::Display) -> Self {
        Self::Internal { action, cause: cause.to_string() }
    }

    /// Returns the error for a task that ended without a result: it panicked, unless the runtime is
    /// shutting down.
    pub fn lost_task(action: &'static str, lost: &JoinError) -> Self {
        if lost.is_cancelled() { Self::Interrupted } else { Self::internal(action, lost) }
    }

    /// Returns the errno for the kernel.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NotFound => Errno::ENOENT,
            Self::Exists => Errno::EEXIST,
            Self::NotDirectory => Errno::ENOTDIR,
            Self::IsDirectory => Errno::EISDIR,
            Self::NotEmpty => Errno::ENOTEMPTY,
            Self::NotPermitted | Self::Forbidden(_) => Errno::EPERM,
            Self::AccessDenied => Errno::EACCES,
            Self::Invalid | Self::BadInput(_) => Errno::EINVAL,
            Self::NameTooLong => Errno::ENAMETOOLONG,
            Self::TooLarge => Errno::EFBIG,
            Self::NoSpace => Errno::ENOSPC,
            Self::QuotaExceeded => Errno::EDQUOT,
            Self::ReadOnly => Errno::EROFS,
            Self::NoAttribute => Errno::ENODATA,
            Self::NotSupported => Errno::ENOTSUP,
            Self::WouldBlock => Errno::EAGAIN,
            Self::Interrupted => Errno::EINTR,
            Self::BadHandle => Errno::EBADF,
            Self::TooManyLinks => Errno::EMLINK,
            Self::BrokenPipe => Errno::EPIPE,
            Self::OutOfRange => Errno::ERANGE,
            Self::NoSuchAddress => Errno::ENXIO,
            Self::NotTty => Errno::ENOTTY,
            Self::TooManyOpen => Errno::ENFILE,
            Self::NoMemory(_) => Errno::ENOMEM,
            Self::Refused(_)
            | Self::Exhausted(_)
            | Self::Unreachable { .. }
            | Self::Engine { .. }
            | Self::Damaged { .. }
            | Self::Storage { .. }
            | Self::Denied { .. }
            | Self::MissingBlock { .. }
            | Self::Contended(_)
            | Self::Unknown { .. }
            | Self::WritesLost
            | Self::Internal { .. } => Errno::EIO,
        }
    }

    /// Returns whether this is a fault, which is logged, and not a normal result.
    pub fn is_fault(&self) -> bool {
        matches!(self.errno(), Errno::EIO | Errno::ENOMEM)
    }
}

/// Awaits a task. `action` says what it does, for the [`Error::Internal`] if it panicked.
pub async fn joined<T>(
    action: &'static str,
    task: impl Future<Output = Result<Result<T>, JoinError>>,
) -> Result<T> {
    task.await.unwrap_or_else(|lost| Err(Error::lost_task(action, &lost)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicked_task_is_a_fault_and_a_cancelled_one_is_not() {
        let panics = tokio::spawn(async { panic!("a defect") });
        let error = joined::<()>("testing", panics).await.unwrap_err();
        assert!(error.is_fault());
        assert_eq!(error.errno(), Errno::EIO);
        let text = error.to_string();
        assert!(text.contains("testing") && text.contains("a defect"), "{text}");
        let cancelled = tokio::spawn(std::future::pending::<Result<()>>());
        cancelled.abort();
        assert!(matches!(joined("testing", cancelled).await, Err(Error::Interrupted)));
    }
}
