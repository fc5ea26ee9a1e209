//! Booking: what follows from a commit, once.

use super::Meta;
use crate::meta::engine::Change;
use crate::meta::plan::Effects;

impl Meta {
    pub(in crate::meta) fn book(&self, _changes: &[Change], _effects: Effects) {}
}
