//! Facts: what planning may know besides records.

use super::Options;

/// Read-only for plans; the client keeps it up to date.
pub struct Facts {
    pub options: Options,
}
