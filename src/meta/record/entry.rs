//! Entry: what a name in a directory points to.

use super::FileKind;
use crate::error::{Error, Result};
use crate::meta::Ino;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub kind: FileKind,
    pub ino: Ino,
}

impl Entry {
    pub const LEN: usize = 9;

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[0] = self.kind as u8;
        out[1..].copy_from_slice(&self.ino.0.to_be_bytes());
        out
    }

    pub fn decode(raw: &[u8]) -> Result<Self> {
        let (Some(kind), Some(Ok(ino))) = (raw.first(), raw.get(1..).map(<[u8; 8]>::try_from))
        else {
            return Err(Error::damaged(
                "entry",
                format!("{} bytes instead of {}", raw.len(), Self::LEN),
            ));
        };
        let kind = FileKind::from_u8(*kind)
            .ok_or_else(|| Error::damaged("entry", format!("unknown type {kind}")))?;
        Ok(Self { kind, ino: Ino(u64::from_be_bytes(ino)) })
    }
}
