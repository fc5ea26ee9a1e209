//! Limits of quotas, and what makes a quota.

use super::names::Names;
use super::reply;
use crate::error::{Error, Result};
use crate::meta::record::{Quota, QuotaKey};

/// A quota exists for every client if its used inodes do. A directory's without limits is one that
/// was removed and came back with a late flush of its usage.
pub(super) fn compose(
    names: &Names,
    key: QuotaKey,
    limits: Option<&[u8]>,
    space: Option<&[u8]>,
    inodes: Option<&[u8]>,
) -> Result<Option<Quota>> {
    let quotas = names.quotas(key);
    let Some(inodes) = inodes else { return Ok(None) };
    let (max_space, max_inodes) = match limits {
        Some(raw) => parse(&quotas.limits, raw)?,
        None => (-1, -1),
    };
    if matches!(key, QuotaKey::Dir(_)) && max_space < 0 && max_inodes < 0 {
        return Ok(None);
    }
    Ok(Some(Quota {
        max_space,
        max_inodes,
        used_space: space.map_or(Ok(0), |raw| reply::number(raw, &quotas.space))?,
        used_inodes: reply::number(inodes, &quotas.inodes)?,
    }))
}

fn parse(key: &str, raw: &[u8]) -> Result<(i64, i64)> {
    let number = |part: &[u8]| part.try_into().map(i64::from_be_bytes);
    match raw.split_at_checked(8).map(|(space, inodes)| (number(space), number(inodes))) {
        Some((Ok(space), Ok(inodes))) => Ok((space, inodes)),
        _ => Err(Error::damaged(key, format!("{} bytes instead of 16", raw.len()))),
    }
}

/// Limits as they are stored.
pub(super) fn pack(space: i64, inodes: i64) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&space.to_be_bytes());
    raw[8..].copy_from_slice(&inodes.to_be_bytes());
    raw
}
