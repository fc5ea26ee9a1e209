//! Options under the Go client's names, wherever they come from: a command line, /etc/fstab, a
//! `StorageClass`, a Secret.
//!
//! Each group converts itself to the options of the layers below. Errors are written for the user.

pub mod comma_list;
pub mod default_paths;
pub mod durations;
pub mod format;
pub mod go_syntax;
pub mod mount;
pub mod sizes;
pub mod storage;

use crate::error::Error;

/// Returns the typed error in the chain, or the whole chain as [`Error::BadInput`] if there is none.
pub fn to_error(error: &anyhow::Error) -> Error {
    let typed = error.chain().find_map(|cause| cause.downcast_ref::<Error>()).cloned();
    typed.unwrap_or_else(|| Error::BadInput(format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_typed_error_is_found_under_its_context() {
        for error in [
            anyhow::Error::from(Error::NoSpace),
            Err::<(), _>(Error::NoSpace).context("storage").unwrap_err(),
        ] {
            assert!(matches!(to_error(&error), Error::NoSpace));
        }
        let untyped = anyhow::anyhow!("inner").context("outer");
        assert_eq!(to_error(&untyped).to_string(), "outer: inner");
    }
}
