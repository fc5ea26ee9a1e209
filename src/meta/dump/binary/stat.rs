//! What a binary dump says about itself.

use std::io::{Read, Seek, SeekFrom};

use super::read::{Item, MAX_FOOTER, Reader, check_footer};
use super::segment_name;
use crate::error::{Error, Result};
use crate::meta::record::Setting;

/// The contents of a dump.
#[derive(Debug)]
pub struct Summary {
    pub version: u32,
    /// By name: the number of records, and where their segments begin.
    pub segments: Vec<(String, u64, Vec<u64>)>,
}

/// Reads the footer of a dump.
pub fn summary(file: &mut (impl Read + Seek)) -> Result<Summary> {
    let failed = |error| Error::bad_input(format!("cannot read the dump: {error}"));
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let truncated = || Error::bad_input("not a binary dump, or a truncated one");
    let end = size.checked_sub(8).ok_or_else(truncated)?;
    file.seek(SeekFrom::Start(end)).map_err(failed)?;
    let mut len = [0; 8];
    file.read_exact(&mut len).map_err(failed)?;
    let len = u64::from_be_bytes(len);
    let start = end.checked_sub(len).filter(|_| len <= MAX_FOOTER).ok_or_else(truncated)?;
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut raw = Vec::new();
    file.take(len).read_to_end(&mut raw).map_err(failed)?;
    let footer = check_footer(&raw)?;
    let mut segments: Vec<_> =
        footer.infos.into_iter().map(|(name, info)| (name, info.num, info.offset)).collect();
    segments.sort_unstable();
    Ok(Summary { version: footer.version, segments })
}

/// Reads the segment at an offset: its name, and each record as text.
pub fn segment(
    file: &mut (impl Read + Seek),
    offset: u64,
    mut show: impl FnMut(String),
) -> Result<String> {
    file.seek(SeekFrom::Start(offset))
        .map_err(|error| Error::bad_input(format!("offset {offset}: {error}")))?;
    let mut reader = Reader::new(std::io::BufReader::new(file));
    let kind = reader.one(|_, item| {
        show(match item {
            Item::Format(raw) => Setting::decode(&raw)?.display()?,
            other => format!("{other:?}"),
        });
        Ok(())
    })?;
    Ok(segment_name(kind))
}
