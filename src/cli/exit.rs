//! How the program ends, in numbers that scripts can tell apart.

use std::fmt;
use std::process::ExitCode;

/// The README lists them; they never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// Nothing was mounted, unmounted or changed.
    Failed = 1,
    /// An option or argument is wrong.
    Usage = 2,
    /// The mount was served, and what was written at the end could not be stored.
    Unflushed = 3,
    /// The mount was served until its connection to the kernel was cut or failed.
    Cut = 4,
    /// The mount was served until the volume was gone, or not for this client any more.
    Lost = 5,
    /// The mount is in use.
    Busy = 6,
}

impl Exit {
    pub fn number(self) -> u8 {
        self as u8
    }

    /// What an error ends the program with.
    pub fn of(error: &anyhow::Error) -> Self {
        error.downcast_ref::<Ended>().map_or(Self::Failed, |ended| ended.exit)
    }

    /// An error that ends the program with this number.
    pub fn with(self, error: anyhow::Error) -> anyhow::Error {
        anyhow::Error::new(Ended { exit: self, error })
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

#[derive(Debug)]
struct Ended {
    exit: Exit,
    error: anyhow::Error,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl std::error::Error for Ended {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_ends_with_its_number() {
        let error = Exit::Busy.with(anyhow::anyhow!("cause").context("in use"));
        assert_eq!(
            (Exit::of(&error), format!("{error:#}").as_str()),
            (Exit::Busy, "in use: cause")
        );
        assert_eq!(Exit::of(&anyhow::anyhow!("other")), Exit::Failed);
        assert_eq!(Exit::of(&error.context("more")), Exit::Busy);
    }
}
