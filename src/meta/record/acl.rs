//! ACL rules: shared, immutable, named by id.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};

/// Which of a node's two rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AclKind {
    Access = 1,
    Default = 2,
}

/// A named user's or group's permission (rwx bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AclEntry {
    pub id: u32,
    pub perm: u16,
}

/// Permission bits per class; [`AclRule::UNSET`] where a class is not given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AclRule {
    pub owner: u16,
    pub group: u16,
    pub mask: u16,
    pub other: u16,
    pub users: Vec<AclEntry>,
    pub groups: Vec<AclEntry>,
}

impl AclRule {
    pub const UNSET: u16 = 0xFFFF;
}

/// Encoded length of a named entry.
const ENTRY_LEN: usize = 6;

impl AclRule {
    /// The stored form in Redis and KV stores.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        for class in [self.owner, self.group, self.mask, self.other] {
            out.put_u16(class);
        }
        for named in [&self.users, &self.groups] {
            out.put_u32(u32::try_from(named.len()).unwrap_or(u32::MAX));
            out.put_slice(&encode_entries(named));
        }
        out.freeze()
    }

    pub fn decode(raw: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("ACL rule", format!("{} bytes are too few", raw.len()));
        let mut rest = raw;
        let mut class = || rest.try_get_u16().map_err(|_| damaged());
        let (owner, group, mask, other) = (class()?, class()?, class()?, class()?);
        let mut named = || {
            let count = rest.try_get_u32().map_err(|_| damaged())? as usize;
            let len = count
                .checked_mul(ENTRY_LEN)
                .filter(|len| *len <= rest.len())
                .ok_or_else(damaged)?;
            let (entries, tail) = rest.split_at(len);
            rest = tail;
            decode_entries(entries)
        };
        let (users, groups) = (named()?, named()?);
        Ok(Self { owner, group, mask, other, users, groups })
    }
}

/// Named entries as SQL columns hold them.
pub fn encode_entries(entries: &[AclEntry]) -> Bytes {
    let mut out = BytesMut::with_capacity(entries.len() * ENTRY_LEN);
    for entry in entries {
        out.put_u32(entry.id);
        out.put_u16(entry.perm);
    }
    out.freeze()
}

pub fn decode_entries(mut raw: &[u8]) -> Result<Vec<AclEntry>> {
    if raw.len() % ENTRY_LEN != 0 {
        return Err(Error::damaged(
            "ACL entries",
            format!("{} bytes, not a multiple of 6", raw.len()),
        ));
    }
    let mut entries = Vec::with_capacity(raw.len() / ENTRY_LEN);
    while !raw.is_empty() {
        entries.push(AclEntry { id: raw.get_u32(), perm: raw.get_u16() });
    }
    Ok(entries)
}
