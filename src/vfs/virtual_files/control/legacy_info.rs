//! Describes a node as text, for tools older than 1.1.

use std::fmt::Write;

use super::objects::{GrowingMemory, object_ranges, visible_slices};
use super::reply::{ReplyWriter, reason};
use crate::error::Result;
use crate::meta::Caller;
use crate::meta::client::{Progress, Summary, SummaryOptions};
use crate::meta::record::Slice;
use crate::vfs::control_protocol::InfoRequest;
use crate::vfs::virtual_files::ControlContext;

/// The most bytes of a line, beside a key.
const LINE: usize = 60;

impl ControlContext {
    pub async fn legacy_info(&self, caller: &Caller, request: InfoRequest, reply: ReplyWriter) {
        let work = self.describe_as_text(caller, &request);
        match reply.cancelled().run_until_cancelled(work).await {
            Some(Ok(text)) => reply.end_with_text(&text),
            Some(Err(error)) => reply.end_with_text(&reason(&error)),
            None => {}
        }
    }

    async fn describe_as_text(&self, caller: &Caller, request: &InfoRequest) -> Result<String> {
        self.may_read(caller, request.ino).await?;
        let of = SummaryOptions { recursive: request.recursive, strict: true };
        let sum = self.meta.summary_with(caller, request.ino, of, &Progress::default()).await?;
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write_node(&mut text, request, sum, &self.paths(request.ino).await?);
        if (sum.files, sum.dirs) == (1, 0) {
            let mut memory = GrowingMemory::new(&self.memory);
            let slices = visible_slices(&self.meta, request.ino, sum.length, &mut memory).await?;
            if request.raw {
                memory.take(slices.len().saturating_mul(LINE))?;
                let _ = write_chunks(&mut text, &slices);
            } else {
                self.write_objects(&mut text, &slices, &mut memory)?;
            }
        }
        Ok(text)
    }

    fn write_objects(
        &self,
        text: &mut String,
        slices: &[(u64, Slice)],
        memory: &mut GrowingMemory,
    ) -> Result<()> {
        let (layout, setting) = (self.store.layout(), self.meta.context().setting());
        let _ = writeln!(text, "objects:");
        for (index, slice) in slices {
            for range in object_ranges(layout, &setting.name, slice) {
                let (key, size, off, len) = (range.key, range.size, range.off, range.len);
                memory.take(key.len() + LINE)?;
                let _ = writeln!(text, "\t{index}:\t{key}\t{size}\t{off}\t{len}");
            }
        }
        Ok(())
    }
}

fn write_node(
    text: &mut String,
    request: &InfoRequest,
    sum: Summary,
    paths: &[String],
) -> std::fmt::Result {
    writeln!(text, "  inode: {}", request.ino)?;
    writeln!(text, "  files: {}", sum.files)?;
    writeln!(text, "   dirs: {}", sum.dirs)?;
    writeln!(text, " length: {}", in_units(sum.length))?;
    writeln!(text, "   size: {}", in_units(sum.size))?;
    match paths {
        [] => writeln!(text, "   path: unknown"),
        [path] => writeln!(text, "   path: {path}"),
        paths => {
            writeln!(text, "  paths:")?;
            paths.iter().try_for_each(|path| writeln!(text, "\t{path}"))
        }
    }
}

fn write_chunks(text: &mut String, slices: &[(u64, Slice)]) -> std::fmt::Result {
    writeln!(text, " chunks:")?;
    slices.iter().try_for_each(|(index, slice)| {
        let Slice { id, size, off, len, .. } = slice;
        writeln!(text, "\t{index}:\t{id}\t{size}\t{off}\t{len}")
    })
}

/// Formats bytes in the largest unit of at least 1, and in full.
fn in_units(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1 << 10 {
        return format!("{bytes} Bytes");
    }
    let (mut amount, mut unit) = (bytes, 0);
    while unit < UNITS.len() - 1 && amount >= 1 << 20 {
        amount >>= 10;
        unit += 1;
    }
    format!("{:.2} {} ({bytes} Bytes)", amount as f64 / 1024.0, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_units() {
        assert_eq!(in_units(0), "0 Bytes");
        assert_eq!(in_units(4096), "4.00 KiB (4096 Bytes)");
        assert_eq!(in_units((3 << 20) + (1 << 19)), "3.50 MiB (3670016 Bytes)");
        assert_eq!(in_units(u64::MAX), "16.00 EiB (18446744073709551615 Bytes)");
    }
}
