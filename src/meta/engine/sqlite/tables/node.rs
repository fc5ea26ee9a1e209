//! Nodes: table `jfs_node`.
//!
//! Times are microseconds, with the remaining nanoseconds (0 to 999) in a second column.

use std::collections::HashMap;
use std::sync::LazyLock;

use rusqlite::{Row, params, params_from_iter};

use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::record::Attr;
use crate::meta::{Ino, Timestamp};

/// The columns of an attr, of a table called `n`.
macro_rules! attr_columns {
    () => {
        "n.type, n.flags, n.mode, n.uid, n.gid, n.atime, n.atimensec, n.mtime, n.mtimensec, \
         n.ctime, n.ctimensec, n.nlink, n.length, n.rdev, n.parent, n.access_acl_id, \
         n.default_acl_id, n.tier_id"
    };
}
pub(super) use attr_columns;

/// Nodes read by one statement. Shorter lists are padded to one of two widths, so that there are
/// only two statements to cache.
const WIDE: usize = 256;
const NARROW: usize = 16;

static WIDE_SELECT: LazyLock<String> = LazyLock::new(|| select_many(WIDE));
static NARROW_SELECT: LazyLock<String> = LazyLock::new(|| select_many(NARROW));

pub fn attr(db: &Db, ino: Ino) -> DbResult<Option<Attr>> {
    let sql = concat!("SELECT ", attr_columns!(), " FROM jfs_node n WHERE n.inode = ?1");
    db.one(sql, [ino], |row| attr_at(row, 0, ino))
}

/// Returns the attrs of those nodes that exist.
pub fn attrs(db: &Db, inos: &[Ino]) -> DbResult<HashMap<Ino, Attr>> {
    let mut found = HashMap::with_capacity(inos.len());
    for some in inos.chunks(WIDE) {
        let (sql, width) = if some.len() > NARROW {
            (WIDE_SELECT.as_str(), WIDE)
        } else {
            (NARROW_SELECT.as_str(), NARROW)
        };
        let Some(last) = some.last() else { continue };
        let padded = some.iter().chain(std::iter::repeat(last)).take(width);
        db.each(sql, params_from_iter(padded), |row| {
            let ino = Columns::new(row, &"table node").ino(18)?;
            found.insert(ino, attr_at(row, 0, ino)?);
            Ok(())
        })?;
    }
    Ok(found)
}

/// Adds to the link count, and moves mtime and ctime forward.
pub fn touch(db: &Db, ino: Ino, links: i64, at: Option<Timestamp>) -> DbResult<()> {
    let sql = "UPDATE jfs_node SET nlink = MAX(nlink + ?2, 0) WHERE inode = ?1";
    if links != 0 {
        db.exec(sql, params![ino, links])?;
    }
    let Some(at) = at else { return Ok(()) };
    let (seconds, rest) = split(at);
    for time in ["m", "c"] {
        let sql = format!(
            "UPDATE jfs_node SET {time}time = ?2, {time}timensec = ?3 \
             WHERE inode = ?1 AND ({time}time, {time}timensec) < (?2, ?3)"
        );
        db.exec(&sql, params![ino, seconds, rest])?;
    }
    Ok(())
}

pub fn put(db: &Db, ino: Ino, attr: &Attr) -> DbResult<()> {
    let sql = "INSERT INTO jfs_node (inode, type, flags, mode, uid, gid, atime, atimensec, mtime, \
               mtimensec, ctime, ctimensec, nlink, length, rdev, parent, access_acl_id, \
               default_acl_id, tier_id) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
               ?17, ?18, ?19) \
               ON CONFLICT (inode) DO UPDATE SET type = ?2, flags = ?3, mode = ?4, uid = ?5, \
               gid = ?6, atime = ?7, atimensec = ?8, mtime = ?9, mtimensec = ?10, ctime = ?11, \
               ctimensec = ?12, nlink = ?13, length = ?14, rdev = ?15, parent = ?16, \
               access_acl_id = ?17, default_acl_id = ?18, tier_id = ?19";
    let (atime, atimensec) = split(attr.atime);
    let (mtime, mtimensec) = split(attr.mtime);
    let (ctime, ctimensec) = split(attr.ctime);
    let values = params![
        ino,
        attr.kind as u8,
        attr.flags,
        attr.mode,
        attr.uid,
        attr.gid,
        atime,
        atimensec,
        mtime,
        mtimensec,
        ctime,
        ctimensec,
        attr.nlink,
        attr.length.cast_signed(),
        attr.rdev,
        attr.parent,
        attr.access_acl,
        attr.default_acl,
        attr.tier,
    ];
    db.exec(sql, values)?;
    Ok(())
}

pub fn remove(db: &Db, ino: Ino) -> DbResult<()> {
    db.exec("DELETE FROM jfs_node WHERE inode = ?1", [ino])?;
    Ok(())
}

/// Decodes the attr in [`attr_columns`], from column `first` on.
pub fn attr_at(row: &Row<'_>, first: usize, ino: Ino) -> DbResult<Attr> {
    let of = format_args!("table node, inode {ino}");
    let columns = Columns::new(row, &of);
    let time = |at: usize| -> DbResult<Timestamp> {
        Ok(join(columns.signed(first + at)?, columns.signed(first + at + 1)?))
    };
    Ok(Attr {
        kind: columns.kind(first)?,
        flags: columns.number(first + 1)?,
        mode: columns.number(first + 2)?,
        uid: columns.number(first + 3)?,
        gid: columns.number(first + 4)?,
        atime: time(5)?,
        mtime: time(7)?,
        ctime: time(9)?,
        nlink: columns.number(first + 11)?,
        length: columns.unsigned(first + 12)?,
        rdev: columns.number(first + 13)?,
        parent: columns.ino(first + 14)?,
        access_acl: columns.number(first + 15)?,
        default_acl: columns.number(first + 16)?,
        tier: columns.number(first + 17)?,
    })
}

fn select_many(width: usize) -> String {
    let marks = vec!["?"; width].join(", ");
    format!(
        concat!("SELECT ", attr_columns!(), ", n.inode FROM jfs_node n WHERE n.inode IN ({})"),
        marks
    )
}

/// Returns microseconds and the remaining nanoseconds. Both are negative before 1970, as in the Go
/// client.
fn split(time: Timestamp) -> (i64, i64) {
    let nanos = i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    (clamp_to_i64(nanos / 1000), clamp_to_i64(nanos % 1000))
}

fn join(micros: i64, rest: i64) -> Timestamp {
    let nanos = i128::from(micros) * 1000 + i128::from(rest);
    let nsec = u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0);
    Timestamp { sec: clamp_to_i64(nanos.div_euclid(1_000_000_000)), nsec }
}

fn clamp_to_i64(wide: i128) -> i64 {
    i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_split_into_microseconds_and_the_rest() {
        let time = |sec, nsec| Timestamp { sec, nsec };
        for (whole, micros, rest) in [
            (time(0, 0), 0, 0),
            (time(1_794_799_715, 165_759_392), 1_794_799_715_165_759, 392),
            (time(-1, 999_999_999), 0, -1),
            (time(-1, 0), -1_000_000, 0),
            (time(-8_022_238_474, 413_905_173), -8_022_238_473_586_094, -827),
        ] {
            assert_eq!(split(whole), (micros, rest), "{whole:?}");
            assert_eq!(join(micros, rest), whole);
        }
    }

    #[test]
    fn times_out_of_range_are_clamped() {
        assert_eq!(split(Timestamp::from_secs(i64::MAX)).0, i64::MAX);
        assert_eq!(split(Timestamp::from_secs(i64::MIN)).0, i64::MIN);
    }
}
