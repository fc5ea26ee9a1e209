//! An open virtual file.

use bytes::Bytes;

use super::access_log::LogReader;
use super::control::ControlHandle;
use crate::chunk::{Budget, Reserved};
use crate::error::{Error, Result};

/// A handle of a virtual file. Dropping it cancels its requests.
pub struct VirtualFile(Kind);

enum Kind {
    /// The text as it was when the file was opened.
    Text(Text),
    Log(LogReader),
    Control(ControlHandle),
}

struct Text {
    bytes: Bytes,
    /// Memory of the bytes.
    _memory: Reserved,
}

impl VirtualFile {
    pub(super) fn text(text: Vec<u8>, memory: &Budget) -> Result<Self> {
        let reserved = memory.try_reserve(text.len()).ok_or(Error::NoMemory(text.len()))?;
        Ok(Self(Kind::Text(Text { bytes: text.into(), _memory: reserved })))
    }

    pub(super) fn log(reader: LogReader) -> Self {
        Self(Kind::Log(reader))
    }

    pub(super) fn control(handle: ControlHandle) -> Self {
        Self(Kind::Control(handle))
    }

    /// Returns up to `len` bytes from `off` on; empty at the end. The log has no offsets: each read
    /// returns the next lines, and waits for them.
    pub async fn read(&self, off: u64, len: u32) -> Result<Bytes> {
        let len = len as usize;
        match &self.0 {
            Kind::Text(text) => Ok(part(&text.bytes, off, len)),
            Kind::Log(reader) => Ok(reader.read(len).await),
            Kind::Control(handle) => handle.read(off, len),
        }
    }

    /// Writes a request, or a part of one. The offset is ignored: requests and their replies follow
    /// each other.
    pub fn write(&self, _off: u64, bytes: &[u8]) -> Result<()> {
        match &self.0 {
            Kind::Control(handle) => handle.write(bytes),
            Kind::Text(_) | Kind::Log(_) => Err(Error::BadHandle),
        }
    }

    /// Handles the close of a descriptor: cancels the requests made through it.
    pub fn flush(&self) {
        if let Kind::Control(handle) = &self.0 {
            handle.cancel();
        }
    }
}

/// Returns the range of a text that a read covers.
fn part(text: &Bytes, off: u64, len: usize) -> Bytes {
    let start = usize::try_from(off).unwrap_or(usize::MAX).min(text.len());
    text.slice(start..start.saturating_add(len).min(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_ends_where_the_text_does() {
        let text = Bytes::from_static(b"0123456789");
        assert_eq!(part(&text, 0, 4), "0123");
        assert_eq!(part(&text, 8, 4), "89");
        assert_eq!(part(&text, 10, 4), "");
        assert_eq!(part(&text, u64::MAX, usize::MAX), "");
    }
}
