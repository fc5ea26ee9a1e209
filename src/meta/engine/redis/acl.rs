//! ACL rules.

use super::{RedisEngine, reply, script};
use crate::error::{Error, Result};
use crate::meta::record::{AclRule, Counter};

impl RedisEngine {
    /// An id lost with an answer is harmless, as is a rule stored twice.
    pub(super) async fn add_acl(&self, rule: &AclRule) -> Result<u32> {
        let keys = [self.names.counter(Counter::AclMaxId), self.names.acl()];
        let mut cmd = script::ADD_ACL.call(&keys);
        cmd.arg(&rule.encode()[..]);
        let id = self.wire.ask_one(cmd).await?.int(&keys[0])?;
        u32::try_from(id).map_err(|_| Error::damaged(&keys[0], format!("{id} is not an ACL id")))
    }

    pub(super) async fn all_acls(&self) -> Result<Vec<(u32, AclRule)>> {
        let key = self.names.acl();
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(&key);
        let mut rules = Vec::new();
        for (field, raw) in self.wire.ask_one(cmd).await?.pairs(&key)? {
            let id = reply::id(&field, &key)?;
            let id = u32::try_from(id)
                .map_err(|_| Error::damaged(&key, format!("{id} is not an ACL id")))?;
            rules.push((id, reply::at(&format!("{key} {id}"), AclRule::decode(&raw))?));
        }
        rules.sort_unstable_by_key(|(id, _)| *id);
        Ok(rules)
    }
}
