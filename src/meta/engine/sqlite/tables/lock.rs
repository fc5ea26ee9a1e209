//! Locks: tables `jfs_flock` and `jfs_plock`, one row per inode, session and owner.

use rusqlite::{Row, params};

use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::engine::{HeldKind, HeldLock};
use crate::meta::record::{Flock, LockKind, Plock, PlockRange, lock};
use crate::meta::{Ino, LockOwner, Sid};

pub fn flocks(db: &Db, ino: Ino) -> DbResult<Vec<Flock>> {
    let sql = "SELECT sid, owner, ltype FROM jfs_flock WHERE inode = ?1 ORDER BY sid, owner";
    db.all(sql, [ino], |row| {
        let (sid, owner) = holder(row, 0, ino)?;
        Ok(Flock { sid, owner, kind: flock_kind(row, 2, ino)? })
    })
}

pub fn plocks(db: &Db, ino: Ino) -> DbResult<Vec<Plock>> {
    let sql = "SELECT sid, owner, records FROM jfs_plock WHERE inode = ?1 ORDER BY sid, owner";
    db.all(sql, [ino], |row| {
        let (sid, owner) = holder(row, 0, ino)?;
        Ok(Plock { sid, owner, ranges: ranges(row, 2, ino)? })
    })
}

pub fn put_flock(db: &Db, ino: Ino, sid: Sid, owner: LockOwner, kind: LockKind) -> DbResult<()> {
    let sql = "INSERT INTO jfs_flock (inode, sid, owner, ltype) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT (inode, sid, owner) DO UPDATE SET ltype = ?4";
    db.exec(sql, params![ino, sid, owner, kind.letter()])?;
    Ok(())
}

pub fn remove_flock(db: &Db, ino: Ino, sid: Sid, owner: LockOwner) -> DbResult<()> {
    let sql = "DELETE FROM jfs_flock WHERE inode = ?1 AND sid = ?2 AND owner = ?3";
    db.exec(sql, params![ino, sid, owner])?;
    Ok(())
}

pub fn put_plock(
    db: &Db,
    ino: Ino,
    sid: Sid,
    owner: LockOwner,
    ranges: &[PlockRange],
) -> DbResult<()> {
    let sql = "INSERT INTO jfs_plock (inode, sid, owner, records) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT (inode, sid, owner) DO UPDATE SET records = ?4";
    db.exec(sql, params![ino, sid, owner, &lock::encode_ranges(ranges)[..]])?;
    Ok(())
}

pub fn remove_plock(db: &Db, ino: Ino, sid: Sid, owner: LockOwner) -> DbResult<()> {
    let sql = "DELETE FROM jfs_plock WHERE inode = ?1 AND sid = ?2 AND owner = ?3";
    db.exec(sql, params![ino, sid, owner])?;
    Ok(())
}

pub fn release(db: &Db, sid: Sid) -> DbResult<()> {
    db.exec("DELETE FROM jfs_flock WHERE sid = ?1", [sid])?;
    db.exec("DELETE FROM jfs_plock WHERE sid = ?1", [sid])?;
    Ok(())
}

pub fn held(db: &Db, sid: Sid) -> DbResult<Vec<HeldLock>> {
    let sql = "SELECT inode, sid, owner, ltype FROM jfs_flock WHERE sid = ?1 ORDER BY inode";
    let mut held = db.all(sql, [sid], |row| {
        let ino = Columns::new(row, &"table flock").ino(0)?;
        let (_, owner) = holder(row, 1, ino)?;
        Ok(HeldLock { ino, owner, kind: HeldKind::Flock(flock_kind(row, 3, ino)?) })
    })?;
    let sql = "SELECT inode, sid, owner, records FROM jfs_plock WHERE sid = ?1 ORDER BY inode";
    held.extend(db.all(sql, [sid], |row| {
        let ino = Columns::new(row, &"table plock").ino(0)?;
        let (_, owner) = holder(row, 1, ino)?;
        Ok(HeldLock { ino, owner, kind: HeldKind::Plock(ranges(row, 3, ino)?) })
    })?);
    Ok(held)
}

fn holder(row: &Row<'_>, first: usize, ino: Ino) -> DbResult<(Sid, LockOwner)> {
    let of = format_args!("locks of inode {ino}");
    let columns = Columns::new(row, &of);
    Ok((Sid(columns.unsigned(first)?), LockOwner(columns.unsigned(first + 1)?)))
}

fn flock_kind(row: &Row<'_>, index: usize, ino: Ino) -> DbResult<LockKind> {
    let of = format_args!("table flock, inode {ino}");
    let columns = Columns::new(row, &of);
    columns.decoded(index, LockKind::from_letter(columns.number(index)?))
}

fn ranges(row: &Row<'_>, index: usize, ino: Ino) -> DbResult<Vec<PlockRange>> {
    let of = format_args!("table plock, inode {ino}");
    let columns = Columns::new(row, &of);
    columns.decoded(index, lock::decode_ranges(columns.bytes(index)?))
}
