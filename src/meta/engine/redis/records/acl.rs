//! ACL rules.

use super::super::client::reply;
use super::super::{RedisEngine, scripts};
use crate::error::{Error, Result};
use crate::meta::record::{AclRule, Counter};

impl RedisEngine {
    /// Stores a rule under a new id. Losing an id with its reply is harmless, and so is storing a rule
    /// twice.
    pub(crate) async fn add_acl(&self, rule: &AclRule) -> Result<u32> {
        let keys = [self.keyspace.counter(Counter::AclMaxId), self.keyspace.acl()];
        let mut cmd = scripts::ADD_ACL.call(&keys);
        cmd.arg(&rule.encode()[..]);
        let id = self.client.query_one(cmd).await?.int(&keys[0])?;
        acl_id(id, &keys[0])
    }

    pub(crate) async fn all_acls(&self) -> Result<Vec<(u32, AclRule)>> {
        let key = self.keyspace.acl();
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(&key);
        let mut rules = Vec::new();
        for (field, raw) in self.client.query_one(cmd).await?.pairs(&key)? {
            let id = acl_id(reply::number(&field, &key)?, &key)?;
            rules.push((id, reply::at(&format!("{key} {id}"), AclRule::decode(&raw))?));
        }
        rules.sort_unstable_by_key(|(id, _)| *id);
        Ok(rules)
    }
}

fn acl_id(id: i64, key: &str) -> Result<u32> {
    u32::try_from(id).map_err(|_| Error::damaged(key, format!("{id} is not an ACL id")))
}
