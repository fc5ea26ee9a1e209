//! The policy: what tenants may make the driver use.
//!
//! Secrets, parameters of classes, attributes and options of volumes, and the settings stored in a
//! tenant's metadata are untrusted input. Each may name a store, a file, an address or an option,
//! which the driver would use with its own privileges. So by default only stores on the network are
//! allowed, and an administrator allows more by flags. A refusal names what was refused and the
//! flag that would allow it, and comes before anything is opened. A client on a bare host acts for
//! the user who started it and is not restricted.
//!
//! The layers that open something call this module at the moment of opening, so nothing bypasses
//! it.

mod endpoints;
mod environment;
mod files;
mod flags;
mod options;
mod stores;

use std::fmt;
use std::sync::Arc;

pub use files::OpenedFile;
pub use flags::Flags;
pub use options::Author;

use crate::error::{Error, Result};

/// What is allowed. Without flags, everything is.
#[derive(Debug, Default)]
pub struct Policy {
    flags: Option<Flags>,
}

impl Policy {
    /// Returns the policy of a driver, which serves tenants that do not trust each other.
    pub fn new(flags: Flags) -> Result<Arc<Self>> {
        flags.check()?;
        Ok(Arc::new(Self { flags: Some(flags) }))
    }

    /// Returns the policy of a client that acts for the user who started it.
    pub fn unrestricted() -> Arc<Self> {
        Arc::default()
    }

    /// Whether there are restrictions.
    pub fn is_restricted(&self) -> bool {
        self.flags.is_some()
    }

    /// Returns the administrator's flags, if there are restrictions.
    fn flags(&self) -> Option<&Flags> {
        self.flags.as_ref()
    }
}

/// Returns the error for what a flag would allow.
fn forbidden_without(what: impl fmt::Display, flag: &str) -> Error {
    Error::Forbidden(format!("{what}; an administrator can allow it by {flag} of the driver"))
}

/// Returns the error for what no flag allows.
fn always_forbidden(what: impl fmt::Display, why: &str) -> Error {
    Error::Forbidden(format!("{what}: {why}"))
}
