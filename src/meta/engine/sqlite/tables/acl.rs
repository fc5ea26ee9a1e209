//! ACL rules: table `jfs_acl`. The id of the row is the id of the rule.

use async_trait::async_trait;
use rusqlite::{Row, params};

use crate::error::{Error, Result};
use crate::meta::engine::AclRecords;
use crate::meta::engine::sqlite::SqliteEngine;
use crate::meta::engine::sqlite::columns::Columns;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::DbResult;
use crate::meta::record::{AclRule, acl};

#[async_trait]
impl AclRecords for SqliteEngine {
    async fn insert_acl(&self, rule: &AclRule) -> Result<u32> {
        let rule = rule.clone();
        self.connections.write(move |db| insert(db, &rule)).await
    }

    async fn acls(&self) -> Result<Vec<(u32, AclRule)>> {
        self.connections.read(all).await
    }
}

pub fn rule(db: &Db, id: u32) -> DbResult<Option<AclRule>> {
    let sql = "SELECT owner, `group`, mask, other, named_users, named_groups FROM jfs_acl \
               WHERE id = ?1";
    db.one(sql, [id], |row| rule_at(row, 0, id))
}

fn all(db: &Db) -> DbResult<Vec<(u32, AclRule)>> {
    let sql = "SELECT id, owner, `group`, mask, other, named_users, named_groups FROM jfs_acl \
               ORDER BY id";
    db.all(sql, [], |row| {
        let id = Columns::new(row, &"table acl").number(0)?;
        Ok((id, rule_at(row, 1, id)?))
    })
}

fn insert(db: &Db, rule: &AclRule) -> DbResult<u32> {
    let sql = "INSERT INTO jfs_acl (owner, `group`, mask, other, named_users, named_groups) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let (users, groups) = (acl::encode_entries(&rule.users), acl::encode_entries(&rule.groups));
    db.exec(sql, params![rule.owner, rule.group, rule.mask, rule.other, &users[..], &groups[..]])?;
    let id = db.last_id();
    u32::try_from(id)
        .map_err(|_| Error::damaged("table acl", format!("no rule ids left after {id}")).into())
}

fn rule_at(row: &Row<'_>, first: usize, id: u32) -> DbResult<AclRule> {
    let of = format_args!("table acl, id {id}");
    let columns = Columns::new(row, &of);
    let named = |index| columns.decoded(index, acl::decode_entries(columns.bytes(index)?));
    Ok(AclRule {
        owner: columns.number(first)?,
        group: columns.number(first + 1)?,
        mask: columns.number(first + 2)?,
        other: columns.number(first + 3)?,
        users: named(first + 4)?,
        groups: named(first + 5)?,
    })
}
