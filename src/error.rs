//! The one error type below the program boundary, and its mapping to errno.
//!
//! Variants say what is wrong. "Not found" and its kind are answers, not faults: they are never
//! logged. Everything that [`Error::is_fault`] names is logged once, where it is handled.

use std::fmt;

use nix::errno::Errno;

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
    NoSuchPlace,
    #[error("inappropriate ioctl")]
    NotTty,

    /// The caller gave something unusable: an option, an address, a setting.
    #[error("{0}")]
    BadInput(String),
    /// This client must not touch the volume: newer metadata, a version gate, another volume.
    #[error("{0}")]
    Refused(String),
    /// The server could not be reached or stopped answering; `place` is its address, masked.
    #[error("{place}: {cause}")]
    Unreachable { place: String, cause: String },
    /// The server answered with an error.
    #[error("{place}: {cause}")]
    Engine { place: String, cause: String },
    /// A stored record does not decode.
    #[error("damaged record {record}: {cause}")]
    Damaged { record: String, cause: String },
    /// The object store failed, or answered with something that is not the object.
    #[error("{place}: cannot {action} {key}: {cause}")]
    Storage { place: String, action: &'static str, key: String, cause: String },
    /// A block that metadata names is not in the object store.
    #[error("{place}: block {key} is not there")]
    MissingBlock { place: String, key: String },
    /// The plan's guards failed more often than any sane contention explains.
    #[error("gave up on {0} after too many conflicts")]
    Contended(&'static str),
    /// A commit was sent, its answer was lost, and looking did not settle whether it took effect.
    #[error("{place}: the outcome of {what} is unknown: {cause}")]
    Unknown { place: String, what: &'static str, cause: String },
}

impl Error {
    pub fn bad_input(what: impl fmt::Display) -> Self {
        Self::BadInput(what.to_string())
    }

    pub fn damaged(record: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self::Damaged { record: record.to_string(), cause: cause.to_string() }
    }

    /// What the kernel is told.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NotFound => Errno::ENOENT,
            Self::Exists => Errno::EEXIST,
            Self::NotDirectory => Errno::ENOTDIR,
            Self::IsDirectory => Errno::EISDIR,
            Self::NotEmpty => Errno::ENOTEMPTY,
            Self::NotPermitted => Errno::EPERM,
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
            Self::NoSuchPlace => Errno::ENXIO,
            Self::NotTty => Errno::ENOTTY,
            Self::Refused(_)
            | Self::Unreachable { .. }
            | Self::Engine { .. }
            | Self::Damaged { .. }
            | Self::Storage { .. }
            | Self::MissingBlock { .. }
            | Self::Contended(_)
            | Self::Unknown { .. } => Errno::EIO,
        }
    }

    /// Whether this is a fault worth a log line, as opposed to an answer.
    pub fn is_fault(&self) -> bool {
        self.errno() == Errno::EIO
    }
}
