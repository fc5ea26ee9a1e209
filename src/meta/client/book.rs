//! Booking: what follows from a commit, once.

use super::Meta;
use crate::meta::engine::Change;
use crate::meta::plan::Effects;

impl Meta {
    pub(in crate::meta) fn book(&self, changes: &[Change], effects: Effects) {
        for change in changes {
            match change {
                Change::AppendSlices { ino, index, .. }
                | Change::ReplaceSlices { ino, index, .. }
                | Change::RemoveChunk { ino, index } => self.facts.open.drop_view(*ino, *index),
                Change::AddSustained(_, ino) => self.sustain(*ino),
                _ => {}
            }
        }
        for ino in &effects.stale {
            self.facts.open.forget(*ino);
        }
        if !effects.deleted.is_empty() || !effects.dead.is_empty() {
            self.collect(effects.deleted, effects.dead);
        }
    }
}
