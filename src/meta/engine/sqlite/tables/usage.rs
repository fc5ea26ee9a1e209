//! Usage: tables `jfs_dir_stats`, `jfs_dir_quota` and `jfs_user_group_quota`.

use async_trait::async_trait;
use rusqlite::{Row, params};

use crate::error::Result;
use crate::meta::Ino;
use crate::meta::engine::UsageRecords;
use crate::meta::engine::sqlite::SqliteEngine;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::record::{DirStat, Quota, QuotaKey};

/// `qtype` of a user's and of a group's quota.
const USER: u32 = 1;
const GROUP: u32 = 2;
/// Dir stats flushed in one transaction.
const STATS_AT_ONCE: usize = 1000;

#[async_trait]
impl UsageRecords for SqliteEngine {
    async fn add_dir_stats(&self, deltas: &[(Ino, DirStat)]) -> Result<Vec<Ino>> {
        let mut left = Vec::new();
        for some in deltas.chunks(STATS_AT_ONCE) {
            let some = some.to_vec();
            let missed = self.connections.write(move |db| {
                let mut missed = Vec::new();
                for (ino, by) in &some {
                    if !add_dir_stat(db, *ino, by)? {
                        missed.push(*ino);
                    }
                }
                Ok(missed)
            });
            left.extend(missed.await?);
        }
        Ok(left)
    }

    async fn put_dir_stat(&self, ino: Ino, stat: &DirStat) -> Result<()> {
        let stat = *stat;
        self.connections.write(move |db| put_dir_stat_of_existing(db, ino, &stat)).await
    }

    async fn clear_dir_stats(&self) -> Result<()> {
        self.connections.write(clear_dir_stats).await
    }

    async fn quotas(&self) -> Result<Vec<(QuotaKey, Quota)>> {
        self.connections.read(|db| db.snapshot(|| quotas(db))).await
    }

    async fn quota(&self, key: QuotaKey) -> Result<Option<Quota>> {
        self.connections.read(move |db| quota(db, key)).await
    }

    async fn put_quota(&self, key: QuotaKey, quota: &Quota, usage: bool) -> Result<bool> {
        let quota = *quota;
        self.connections.write(move |db| put_quota(db, key, &quota, usage)).await
    }

    async fn remove_quota(&self, key: QuotaKey) -> Result<()> {
        self.connections.write(move |db| remove_quota(db, key)).await
    }

    async fn add_quota_usage(&self, deltas: &[(QuotaKey, i64, i64)]) -> Result<()> {
        let deltas = deltas.to_vec();
        self.connections
            .write(move |db| {
                deltas
                    .iter()
                    .try_for_each(|(key, space, inodes)| add_quota_usage(db, *key, *space, *inodes))
            })
            .await
    }

    async fn clear_owner_quotas(&self) -> Result<()> {
        self.connections.write(clear_owner_quotas).await
    }
}

pub fn dir_stat(db: &Db, ino: Ino) -> DbResult<Option<DirStat>> {
    let sql = "SELECT data_length, used_space, used_inodes FROM jfs_dir_stats WHERE inode = ?1";
    db.one(sql, [ino], |row| {
        let of = format_args!("table dir_stats, inode {ino}");
        let columns = Columns::new(row, &of);
        Ok(DirStat {
            length: columns.signed(0)?,
            space: columns.signed(1)?,
            inodes: columns.signed(2)?,
        })
    })
}

pub fn put_dir_stat(db: &Db, ino: Ino, stat: &DirStat) -> DbResult<()> {
    let sql = "INSERT INTO jfs_dir_stats (inode, data_length, used_space, used_inodes) \
               VALUES (?1, ?2, ?3, ?4) ON CONFLICT (inode) \
               DO UPDATE SET data_length = ?2, used_space = ?3, used_inodes = ?4";
    db.exec(sql, params![ino, stat.length, stat.space, stat.inodes])?;
    Ok(())
}

/// Writes the stat of a directory if it still exists.
fn put_dir_stat_of_existing(db: &Db, ino: Ino, stat: &DirStat) -> DbResult<()> {
    let sql = "SELECT 1 FROM jfs_node WHERE inode = ?1";
    match db.one(sql, [ino], |_| Ok(()))? {
        Some(()) => put_dir_stat(db, ino, stat),
        None => Ok(()),
    }
}

pub fn remove_dir_stat(db: &Db, ino: Ino) -> DbResult<()> {
    db.exec("DELETE FROM jfs_dir_stats WHERE inode = ?1", [ino])?;
    Ok(())
}

/// Adds to a stat. Returns false if it is missing or would turn negative.
fn add_dir_stat(db: &Db, ino: Ino, by: &DirStat) -> DbResult<bool> {
    let sql = "UPDATE jfs_dir_stats SET data_length = data_length + ?2, \
               used_space = used_space + ?3, used_inodes = used_inodes + ?4 \
               WHERE inode = ?1 AND data_length + ?2 >= 0 AND used_space + ?3 >= 0 \
               AND used_inodes + ?4 >= 0";
    Ok(db.exec(sql, params![ino, by.length, by.space, by.inodes])? > 0)
}

fn clear_dir_stats(db: &Db) -> DbResult<()> {
    db.exec("DELETE FROM jfs_dir_stats", [])?;
    Ok(())
}

pub fn quota(db: &Db, key: QuotaKey) -> DbResult<Option<Quota>> {
    let dir = "SELECT max_space, max_inodes, used_space, used_inodes FROM jfs_dir_quota \
               WHERE inode = ?1";
    let owner = "SELECT max_space, max_inodes, used_space, used_inodes FROM jfs_user_group_quota \
                 WHERE qtype = ?1 AND qkey = ?2";
    match row_of(key) {
        QuotaRow::Dir(ino) => db.one(dir, [ino], |row| quota_at(row, 0, key)),
        QuotaRow::Owner { kind, id } => db.one(owner, [kind, id], |row| quota_at(row, 0, key)),
    }
}

fn quotas(db: &Db) -> DbResult<Vec<(QuotaKey, Quota)>> {
    let sql = "SELECT inode, max_space, max_inodes, used_space, used_inodes FROM jfs_dir_quota \
               ORDER BY inode";
    let mut found = db.all(sql, [], |row| {
        let key = QuotaKey::Dir(Columns::new(row, &"table dir_quota").ino(0)?);
        Ok((key, quota_at(row, 1, key)?))
    })?;
    let sql = "SELECT qtype, qkey, max_space, max_inodes, used_space, used_inodes \
               FROM jfs_user_group_quota ORDER BY qtype, qkey";
    db.each(sql, [], |row| {
        let columns = Columns::new(row, &"table user_group_quota");
        let key = match columns.number(0)? {
            USER => QuotaKey::User(columns.number(1)?),
            GROUP => QuotaKey::Group(columns.number(1)?),
            // A later version may have added kinds that this client does not know.
            _ => return Ok(()),
        };
        found.push((key, quota_at(row, 2, key)?));
        Ok(())
    })?;
    Ok(found)
}

/// Writes the limits and, with `usage`, the usage. Returns whether the quota is new.
pub fn put_quota(db: &Db, key: QuotaKey, new: &Quota, usage: bool) -> DbResult<bool> {
    let old = quota(db, key)?;
    let used = if usage { *new } else { old.unwrap_or_default() };
    let dir = "INSERT INTO jfs_dir_quota (inode, max_space, max_inodes, used_space, used_inodes) \
               VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (inode) DO UPDATE \
               SET max_space = ?2, max_inodes = ?3, used_space = ?4, used_inodes = ?5";
    let owner = "INSERT INTO jfs_user_group_quota \
                 (max_space, max_inodes, used_space, used_inodes, qtype, qkey) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (qtype, qkey) DO UPDATE \
                 SET max_space = ?1, max_inodes = ?2, used_space = ?3, used_inodes = ?4";
    let (space, inodes) = (used.used_space, used.used_inodes);
    match row_of(key) {
        QuotaRow::Dir(ino) => {
            db.exec(dir, params![ino, new.max_space, new.max_inodes, space, inodes])?
        }
        QuotaRow::Owner { kind, id } => {
            db.exec(owner, params![new.max_space, new.max_inodes, space, inodes, kind, id])?
        }
    };
    Ok(old.is_none())
}

/// Removes a directory's quota. That of a user or group stays for its usage, without limits.
pub fn remove_quota(db: &Db, key: QuotaKey) -> DbResult<()> {
    match row_of(key) {
        QuotaRow::Dir(ino) => db.exec("DELETE FROM jfs_dir_quota WHERE inode = ?1", [ino])?,
        QuotaRow::Owner { kind, id } => {
            let sql = "UPDATE jfs_user_group_quota SET max_space = -1, max_inodes = -1 \
                       WHERE qtype = ?1 AND qkey = ?2";
            db.exec(sql, [kind, id])?
        }
    };
    Ok(())
}

/// Adds to the usage. Users and groups are counted whether they have limits or not.
fn add_quota_usage(db: &Db, key: QuotaKey, space: i64, inodes: i64) -> DbResult<()> {
    let dir = "UPDATE jfs_dir_quota SET used_space = used_space + ?2, \
               used_inodes = used_inodes + ?3 WHERE inode = ?1";
    let owner = "INSERT INTO jfs_user_group_quota \
                 (qtype, qkey, max_space, max_inodes, used_space, used_inodes) \
                 VALUES (?1, ?2, -1, -1, ?3, ?4) ON CONFLICT (qtype, qkey) DO UPDATE \
                 SET used_space = used_space + ?3, used_inodes = used_inodes + ?4";
    match row_of(key) {
        QuotaRow::Dir(ino) => db.exec(dir, params![ino, space, inodes])?,
        QuotaRow::Owner { kind, id } => db.exec(owner, params![kind, id, space, inodes])?,
    };
    Ok(())
}

fn clear_owner_quotas(db: &Db) -> DbResult<()> {
    db.exec("DELETE FROM jfs_user_group_quota", [])?;
    Ok(())
}

/// The table and the key of a quota's row.
enum QuotaRow {
    Dir(Ino),
    Owner { kind: u32, id: u32 },
}

fn row_of(key: QuotaKey) -> QuotaRow {
    match key {
        QuotaKey::Dir(ino) => QuotaRow::Dir(ino),
        QuotaKey::User(uid) => QuotaRow::Owner { kind: USER, id: uid },
        QuotaKey::Group(gid) => QuotaRow::Owner { kind: GROUP, id: gid },
    }
}

fn quota_at(row: &Row<'_>, first: usize, key: QuotaKey) -> DbResult<Quota> {
    let of = format_args!("quota {key:?}");
    let columns = Columns::new(row, &of);
    Ok(Quota {
        max_space: columns.signed(first)?,
        max_inodes: columns.signed(first + 1)?,
        used_space: columns.signed(first + 2)?,
        used_inodes: columns.signed(first + 3)?,
    })
}
