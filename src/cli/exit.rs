//! Exit statuses that scripts can tell apart.

use std::fmt;
use std::process::ExitCode;

/// The README lists them; their meaning never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// Nothing was mounted, unmounted or changed.
    Failed = 1,
    /// An option or argument is wrong.
    Usage = 2,
    /// The mount was served, but the last written data could not be stored.
    Unflushed = 3,
    /// The mount was served until its connection to the kernel was aborted or failed.
    Disconnected = 4,
    /// The mount was served until the volume was gone, or closed to this client.
    Lost = 5,
    /// The mount is in use.
    Busy = 6,
}

impl Exit {
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the status that an error ends the program with.
    pub fn of(error: &anyhow::Error) -> Self {
        error.downcast_ref::<ErrorWithExit>().map_or(Self::Failed, |error| error.exit)
    }

    /// Attaches this status to an error.
    pub fn with(self, error: anyhow::Error) -> anyhow::Error {
        anyhow::Error::new(ErrorWithExit { exit: self, error })
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

#[derive(Debug)]
struct ErrorWithExit {
    exit: Exit,
    error: anyhow::Error,
}

impl fmt::Display for ErrorWithExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl std::error::Error for ErrorWithExit {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_exit_status() {
        let error = Exit::Busy.with(anyhow::anyhow!("cause").context("in use"));
        assert_eq!(
            (Exit::of(&error), format!("{error:#}").as_str()),
            (Exit::Busy, "in use: cause")
        );
        assert_eq!(Exit::of(&anyhow::anyhow!("other")), Exit::Failed);
        assert_eq!(Exit::of(&error.context("more")), Exit::Busy);
    }
}
