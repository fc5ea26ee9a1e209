//! An open virtual file.

use bytes::Bytes;

use super::access_log::LogReader;
use super::control::Conversation;
use crate::chunk::{Budget, Reserved};
use crate::error::{Error, Result};

/// A handle of a virtual file. Dropping it ends what it started.
pub struct Virtual(Kind);

enum Kind {
    /// As it was when it was opened.
    Text(Text),
    Log(LogReader),
    Control(Conversation),
}

struct Text {
    bytes: Bytes,
    /// What they lie in.
    _room: Reserved,
}

impl Virtual {
    pub(super) fn text(text: Vec<u8>, memory: &Budget) -> Result<Self> {
        let room = memory.try_reserve(text.len()).ok_or(Error::NoMemory(text.len()))?;
        Ok(Self(Kind::Text(Text { bytes: text.into(), _room: room })))
    }

    pub(super) fn log(reader: LogReader) -> Self {
        Self(Kind::Log(reader))
    }

    pub(super) fn control(conversation: Conversation) -> Self {
        Self(Kind::Control(conversation))
    }

    /// Up to `len` bytes from `off` on; none at the end. The log has no offsets: each read answers what
    /// comes next, and waits for it.
    pub async fn read(&self, off: u64, len: u32) -> Result<Bytes> {
        let len = len as usize;
        match &self.0 {
            Kind::Text(text) => Ok(part(&text.bytes, off, len)),
            Kind::Log(reader) => Ok(reader.read(len).await),
            Kind::Control(conversation) => conversation.read(off, len),
        }
    }

    /// A request, or a part of one. Where it is written does not matter: requests and their answers
    /// follow each other.
    pub fn write(&self, _off: u64, bytes: &[u8]) -> Result<()> {
        match &self.0 {
            Kind::Control(conversation) => conversation.write(bytes),
            Kind::Text(_) | Kind::Log(_) => Err(Error::BadHandle),
        }
    }

    /// A descriptor of the handle was closed: what was asked for through it is given up.
    pub fn flush(&self) {
        if let Kind::Control(conversation) = &self.0 {
            conversation.cancel();
        }
    }
}

/// The bytes of a text that a read asks for.
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
