//! What `gc` found and did, in the Go client's form.

use serde_json::json;

use super::Gc;

/// Numbers and their bytes.
type Counted = (u64, u64);

#[derive(Debug, Default)]
pub struct Report {
    pub trash: u64,
    pub detached: u64,
    pub pending_files: Counted,
    pub cleaned_files: Counted,
    pub delayed: Counted,
    pub cleaned_delayed: Counted,
    pub pending_slices: u64,
    pub compacted_chunks: u64,
    pub compacted_slices: u64,
    pub compacted_bytes: u64,
    pub leaked_chunks: u64,
    /// Slices that files use although they have no references.
    pub unreferenced: u64,
    pub used_slices: u64,
    pub used_bytes: u64,
    pub scanned: u64,
    pub valid: Counted,
    pub pending: Counted,
    pub compacted: Counted,
    pub leaked: Counted,
    pub skipped: Counted,
    /// What could not be deleted or compacted.
    pub failed: u64,
}

impl Report {
    pub fn print(&self, command: &Gc) -> anyhow::Result<()> {
        if command.json {
            println!("{}", serde_json::to_string_pretty(&self.as_json())?);
            return Ok(());
        }
        if self.trash > 0 {
            println!("Cleaned trash: {} files", self.trash);
        }
        if command.compact {
            let Self { compacted_chunks, compacted_slices, compacted_bytes, .. } = self;
            println!(
                "Compacted {compacted_chunks} chunks ({compacted_slices} slices, \
                 {compacted_bytes} bytes)."
            );
        }
        println!("using {} slices ({} bytes)", self.used_slices, self.used_bytes);
        if self.leaked_chunks > 0 {
            println!("{} chunks without a file", self.leaked_chunks);
        }
        if self.unreferenced > 0 {
            println!("{} slices in use without references are kept", self.unreferenced);
        }
        if command.delete || command.compact {
            println!("Deleted {} pending slices", self.pending_slices);
        }
        let with_bytes =
            |(count, bytes): Counted, what: &str| format!("{count} {what} ({bytes} bytes)");
        println!(
            "scanned {} objects, {} valid, {}, {}, {}, {}, {}, {}",
            self.scanned,
            self.valid.0,
            with_bytes(self.pending, "pending delete"),
            with_bytes(self.compacted, "compacted"),
            with_bytes(self.leaked, "leaked"),
            with_bytes(self.cleaned_delayed, "delslices"),
            with_bytes(self.cleaned_files, "delfiles"),
            with_bytes(self.skipped, "skipped"),
        );
        if self.leaked.0 > 0 && !command.delete {
            println!("--delete deletes the leaked objects");
        }
        Ok(())
    }

    fn as_json(&self) -> serde_json::Value {
        let counted = |(count, bytes): Counted| json!({ "Count": count, "Bytes": bytes });
        json!({
            "CleanedTrash": self.trash,
            "CleanedDetachedNodes": self.detached,
            "PendingDeletedFiles": counted(self.pending_files),
            "CleanedPendingFiles": counted(self.cleaned_files),
            "TrashSlices": counted(self.delayed),
            "CleanedTrashSlices": counted(self.cleaned_delayed),
            "CleanedPendingSlices": self.pending_slices,
            "CompactedChunks": self.compacted_chunks,
            "CompactedSlices": counted((self.compacted_slices, self.compacted_bytes)),
            "LeakedChunks": self.leaked_chunks,
            "UnreferencedSlices": self.unreferenced,
            "UsedSlices": counted((self.used_slices, self.used_bytes)),
            "ScannedObjects": self.scanned,
            "ValidObjects": counted(self.valid),
            "PendingDeleteObjects": counted(self.pending),
            "CompactedObjects": counted(self.compacted),
            "LeakedObjects": counted(self.leaked),
            "SkippedObjects": counted(self.skipped),
            "Failed": self.failed,
        })
    }
}
