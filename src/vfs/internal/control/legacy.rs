//! All about a node, as tools older than 1.1 ask for it: a text.

use std::fmt::Write;

use super::answer::{Answer, reason};
use super::objects::{Room, fragments, parts};
use super::request::Info;
use crate::error::Result;
use crate::meta::Caller;
use crate::meta::client::{Progress, Summary, SummaryOptions};
use crate::meta::record::Slice;
use crate::vfs::internal::Work;

/// Bytes of a line at most, beside a key.
const LINE: usize = 60;

impl Work {
    pub async fn legacy_info(&self, caller: &Caller, ask: Info, answer: Answer) {
        let work = self.describe_as_text(caller, &ask);
        match answer.cancelled().run_until_cancelled(work).await {
            Some(Ok(text)) => answer.end_with_text(&text),
            Some(Err(error)) => answer.end_with_text(&reason(&error)),
            None => {}
        }
    }

    async fn describe_as_text(&self, caller: &Caller, ask: &Info) -> Result<String> {
        self.may_read(caller, ask.ino).await?;
        let of = SummaryOptions { recursive: ask.recursive, strict: true };
        let sum = self.meta.summary_with(caller, ask.ino, of, &Progress::default()).await?;
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write_node(&mut text, ask, sum, &self.paths(ask.ino).await?);
        if (sum.files, sum.dirs) == (1, 0) {
            let mut room = Room::new(&self.memory);
            let fragments = fragments(&self.meta, (ask.ino, sum.length), &mut room).await?;
            if ask.raw {
                room.take(fragments.len().saturating_mul(LINE))?;
                let _ = write_chunks(&mut text, &fragments);
            } else {
                self.write_objects(&mut text, &fragments, &mut room)?;
            }
        }
        Ok(text)
    }

    fn write_objects(
        &self,
        text: &mut String,
        fragments: &[(u64, Slice)],
        room: &mut Room,
    ) -> Result<()> {
        let (layout, setting) = (self.store.layout(), self.meta.context().setting());
        let _ = writeln!(text, "objects:");
        for (index, fragment) in fragments {
            for part in parts(layout, &setting.name, fragment) {
                let (key, size, off, len) = (part.key, part.size, part.off, part.len);
                room.take(key.len() + LINE)?;
                let _ = writeln!(text, "\t{index}:\t{key}\t{size}\t{off}\t{len}");
            }
        }
        Ok(())
    }
}

fn write_node(text: &mut String, ask: &Info, sum: Summary, paths: &[String]) -> std::fmt::Result {
    writeln!(text, "  inode: {}", ask.ino)?;
    writeln!(text, "  files: {}", sum.files)?;
    writeln!(text, "   dirs: {}", sum.dirs)?;
    writeln!(text, " length: {}", in_words(sum.length))?;
    writeln!(text, "   size: {}", in_words(sum.size))?;
    match paths {
        [] => writeln!(text, "   path: unknown"),
        [path] => writeln!(text, "   path: {path}"),
        paths => {
            writeln!(text, "  paths:")?;
            paths.iter().try_for_each(|path| writeln!(text, "\t{path}"))
        }
    }
}

fn write_chunks(text: &mut String, fragments: &[(u64, Slice)]) -> std::fmt::Result {
    writeln!(text, " chunks:")?;
    fragments.iter().try_for_each(|(index, fragment)| {
        let Slice { id, size, off, len, .. } = fragment;
        writeln!(text, "\t{index}:\t{id}\t{size}\t{off}\t{len}")
    })
}

/// A number of bytes in the largest unit that leaves something before the point, and in full.
fn in_words(bytes: u64) -> String {
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
    fn bytes_are_told_in_words() {
        assert_eq!(in_words(0), "0 Bytes");
        assert_eq!(in_words(4096), "4.00 KiB (4096 Bytes)");
        assert_eq!(in_words((3 << 20) + (1 << 19)), "3.50 MiB (3670016 Bytes)");
        assert_eq!(in_words(u64::MAX), "16.00 EiB (18446744073709551615 Bytes)");
    }
}
