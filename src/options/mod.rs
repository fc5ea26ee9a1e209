//! Options as the Go client names them, for whoever reads them: a command line, /etc/fstab, a
//! storage class, a Secret.
//!
//! Each knows what becomes of it in the layers below. What is wrong with one is said in words for
//! people.

pub mod arguments;
pub mod durations;
pub mod format;
pub mod home;
pub mod list;
pub mod mount;
pub mod sizes;
pub mod storage;

use crate::error::Error;

/// The error that something said in words for people was about, or the words.
pub fn told(error: &anyhow::Error) -> Error {
    let known = error.chain().find_map(|cause| cause.downcast_ref::<Error>()).cloned();
    known.unwrap_or_else(|| Error::BadInput(format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn an_error_keeps_its_kind_whatever_was_said_around_it() {
        for error in [
            anyhow::Error::from(Error::NoSpace),
            Err::<(), _>(Error::NoSpace).context("storage").unwrap_err(),
        ] {
            assert!(matches!(told(&error), Error::NoSpace));
        }
        let words = anyhow::anyhow!("inner").context("outer");
        assert_eq!(told(&words).to_string(), "outer: inner");
    }
}
