//! What the driver lets others name: the one place that decides it.
//!
//! A Secret, the parameters of a class, the attributes and options of a volume and the setting that
//! lies in somebody's metadata all come from outside. Each of them may name a store, a file, an
//! address, an option; what the driver does then, it does with its own rights. So by default it
//! takes only what lies on the network, and an administrator opens the rest by flags. What is refused
//! is refused by its name, together with the flag that would allow it, and before anything is looked
//! at. A client on a bare host acts for who started it and is not restricted.
//!
//! The layers that open something ask here at the moment of opening, so that no way in goes past it.

mod endpoints;
mod environment;
mod files;
mod flags;
mod options;
mod stores;

use std::fmt;
use std::sync::Arc;

pub use files::Opened;
pub use flags::Flags;
pub use options::Author;

use crate::error::{Error, Result};

/// What may be named. Without flags, everything may.
#[derive(Debug, Default)]
pub struct Policy {
    flags: Option<Flags>,
}

impl Policy {
    /// Of a driver, which serves people who do not trust each other.
    pub fn new(flags: Flags) -> Result<Arc<Self>> {
        flags.check()?;
        Ok(Arc::new(Self { flags: Some(flags) }))
    }

    /// Of a client that acts for who started it.
    pub fn unrestricted() -> Arc<Self> {
        Arc::default()
    }

    /// Whether anything is closed at all.
    pub fn restricts(&self) -> bool {
        self.flags.is_some()
    }

    /// What the administrator has said, if there are restrictions at all.
    fn flags(&self) -> Option<&Flags> {
        self.flags.as_ref()
    }
}

/// The refusal of something that a flag would allow.
fn refused(what: impl fmt::Display, flag: &str) -> Error {
    Error::Forbidden(format!("{what}; an administrator can allow it by {flag} of the driver"))
}

/// The refusal of something that nothing allows.
fn never(what: impl fmt::Display, why: &str) -> Error {
    Error::Forbidden(format!("{what}: {why}"))
}
