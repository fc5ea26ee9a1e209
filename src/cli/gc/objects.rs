//! Classifying objects: those of slices in use, those that wait for deletion, and leaked ones.

use std::time::SystemTime;

use anyhow::Context;
use futures::StreamExt;
use tracing::{debug, warn};

use super::Gc;
use super::leaked::Leaked;
use super::report::Report;
use crate::cli::progress::{Progress, Tally};
use crate::cli::volume_scan::ScannedVolume;
use crate::cli::volume_scan::objects::BlockName;
use crate::cli::volume_scan::passes::Pass;
use crate::cli::volume_scan::slice_table::{SliceTable, TableEntry, kind};
use crate::meta::client::Progress as Cancel;
use crate::object::Object;

/// Leaked objects that are remembered before they are deleted: about 100 MiB.
const MAX_LEAKED: usize = 1 << 20;

/// How many objects there are of each kind.
pub struct Classes {
    scanned: Tally,
    valid: Tally,
    pending: Tally,
    compacted: Tally,
    leaked: Tally,
    skipped: Tally,
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Valid,
    Pending,
    Compacted,
    Leaked,
}

impl Classes {
    pub fn new(shown: &Progress) -> Self {
        Self {
            scanned: shown.tally("Scanned objects", None),
            valid: shown.tally("Valid objects", Some("Valid data")),
            pending: shown.tally("Pending delete objects", Some("Pending delete data")),
            compacted: shown.tally("Compacted objects", Some("Compacted data")),
            leaked: shown.tally("Leaked objects", Some("Leaked data")),
            skipped: shown.tally("Skipped objects", Some("Skipped data")),
        }
    }

    pub fn count_into(&self, report: &mut Report) {
        let numbers = |tally: &Tally| (tally.count(), tally.bytes());
        report.scanned = self.scanned.count();
        report.valid = numbers(&self.valid);
        report.pending = numbers(&self.pending);
        report.compacted = numbers(&self.compacted);
        report.leaked = numbers(&self.leaked);
        report.skipped = numbers(&self.skipped);
    }

    fn of(&self, class: Class) -> &Tally {
        match class {
            Class::Valid => &self.valid,
            Class::Pending => &self.pending,
            Class::Compacted => &self.compacted,
            Class::Leaked => &self.leaked,
        }
    }
}

impl Gc {
    /// Lists the objects and, with `--delete`, deletes the leaked ones. Only looks at those that
    /// were modified before the given time.
    #[expect(clippy::too_many_arguments, reason = "one step of the scan, with all its state")]
    pub(super) async fn classify(
        &self,
        volume: &ScannedVolume,
        pass: Pass,
        table: &mut SliceTable,
        before: SystemTime,
        classes: &Classes,
        cancel: &Cancel,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let mut leaked = Leaked::new(volume, self.threads.into());
        let mut pages = Box::pin(volume.pages());
        while let Some(page) = pages.next().await {
            cancel.check()?;
            let page = page.with_context(|| format!("cannot list {}", volume.objects.place()))?;
            for object in page {
                let Some(name) = BlockName::parse(&object.key) else { continue };
                if !pass.takes(name.slice) {
                    continue;
                }
                classes.scanned.add(1);
                let Some(object) = complete(volume, object, classes).await else { continue };
                if object.modified > before {
                    debug!(key = object.key, "skipping a new object");
                    classes.skipped.add_data(1, object.size);
                    continue;
                }
                let slices = table.of(name.slice);
                let class = class(slices, name, volume.layout.block_size);
                classes.of(class).add_data(1, object.size);
                if class == Class::Leaked && self.delete {
                    leaked.add(slices.is_empty().then_some(name.slice), object.key);
                }
            }
            if leaked.len() >= MAX_LEAKED {
                report.failed += leaked.delete(cancel).await?;
            }
        }
        report.failed += leaked.delete(cancel).await?;
        Ok(())
    }
}

/// Asks for what a listing left out. Counts an object that is gone as skipped.
async fn complete(volume: &ScannedVolume, object: Object, classes: &Classes) -> Option<Object> {
    if object.size > 0 && object.modified > SystemTime::UNIX_EPOCH {
        return Some(object);
    }
    match volume.objects.head(&object.key).await {
        Ok(found) => Some(Object { key: object.key, ..found }),
        Err(error) => {
            warn!(key = object.key, %error, "cannot get the age of an object");
            classes.skipped.add_data(1, object.size);
            None
        }
    }
}

/// Compares an object with the slices of its id. A full block must lie within its slice, and the
/// last one must end where the slice ends.
fn class(slices: &[TableEntry], name: BlockName, block_size: u32) -> Class {
    let block_size = u64::from(block_size);
    let fits = |entry: &&TableEntry| {
        let size = u64::from(entry.slice().size);
        let Some(end) = name.index.checked_mul(block_size).and_then(|s| s.checked_add(name.size))
        else {
            return false;
        };
        if name.size == block_size { end <= size } else { end == size }
    };
    match slices.iter().find(fits) {
        None => Class::Leaked,
        Some(entry) if entry.is(kind::USED) => Class::Valid,
        Some(entry) if entry.is(kind::DEAD) => Class::Pending,
        Some(_) => Class::Compacted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::record::SliceSize;
    use crate::slice::SliceId;

    const BLOCK: u32 = 1 << 20;

    #[test]
    fn an_object_is_of_the_class_of_its_slice_if_it_fits_into_it() {
        let mut table = SliceTable::new(100);
        let slice = |id| SliceSize { id: SliceId(id), size: 2 * BLOCK + 5 };
        table.add(slice(1), kind::USED).unwrap();
        table.add(slice(1), kind::DEAD).unwrap();
        table.add(slice(2), kind::DEAD).unwrap();
        table.add(slice(3), kind::DELAYED).unwrap();
        table.sort();
        let full = u64::from(BLOCK);
        for (slice, index, size, expected) in [
            (1, 0, full, Class::Valid),
            (1, 1, full, Class::Valid),
            (1, 2, 5, Class::Valid),
            (1, 2, full, Class::Leaked),
            (1, 2, 6, Class::Leaked),
            (1, 1, 5, Class::Leaked),
            (1, u64::MAX, 5, Class::Leaked),
            (2, 0, full, Class::Pending),
            (3, 2, 5, Class::Compacted),
            (4, 0, full, Class::Leaked),
        ] {
            let name = BlockName { slice, index, size };
            assert_eq!(class(table.of(slice), name, BLOCK), expected, "{name:?}");
        }
    }
}
