//! The ACL rules this client knows, and the calls that read and set a node's rules.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::{Caller, Meta};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::op::acl::{Facl, SetFacl};
use crate::meta::record::{AclKind, AclRule, Attr};
use crate::sync::RwLock;

/// Rules are shared, immutable and small in number; what is known stays known.
#[derive(Default)]
pub struct AclCache {
    rules: RwLock<Known>,
    /// Held while a rule is being stored, so that one rule is stored once.
    storing: Mutex<()>,
}

#[derive(Default)]
struct Known {
    by_id: HashMap<u32, Arc<AclRule>>,
    ids: HashMap<Arc<AclRule>, u32>,
}

impl AclCache {
    pub fn rule(&self, id: u32) -> Option<Arc<AclRule>> {
        self.rules.read().by_id.get(&id).cloned()
    }

    /// The id of an equal rule, if one is known.
    pub fn id_of(&self, rule: &AclRule) -> Option<u32> {
        self.rules.read().ids.get(rule).copied()
    }

    pub fn add(&self, id: u32, rule: AclRule) -> Arc<AclRule> {
        let mut known = self.rules.write();
        let rule = Arc::new(rule);
        known.ids.entry(Arc::clone(&rule)).or_insert(id);
        Arc::clone(known.by_id.entry(id).or_insert(rule))
    }
}

impl Meta {
    /// Sets a rule of a node, or removes it by an empty one. Answers the attr as it is then: an
    /// access rule changes the mode as well.
    pub async fn set_facl(
        &self,
        caller: &Caller,
        ino: Ino,
        kind: AclKind,
        rule: &AclRule,
    ) -> Result<Attr> {
        if !self.facts.setting().enable_acl {
            return Err(Error::NotSupported);
        }
        if ino.is_trash() {
            return Err(Error::NotPermitted);
        }
        self.run(&SetFacl { caller, ino, kind, rule }).await
    }

    /// A rule of a node; `NoAttribute` if it has none.
    pub async fn facl(&self, ino: Ino, kind: AclKind) -> Result<Arc<AclRule>> {
        if !self.facts.setting().enable_acl {
            return Err(Error::NoAttribute);
        }
        self.run(&Facl { ino, kind }).await
    }

    /// Learns every rule of the volume. A session begins with it if the volume has ACLs.
    pub async fn load_acls(&self) -> Result<()> {
        for (id, rule) in self.engine.acls().await? {
            self.facts.acls.add(id, rule);
        }
        Ok(())
    }

    /// The id of a rule; it is stored if no equal one is. Another client may store an equal rule at
    /// the same time: two ids for one rule are harmless.
    pub(in crate::meta) async fn acl_id(&self, rule: &AclRule) -> Result<u32> {
        let known = &self.facts.acls;
        let _storing = known.storing.lock().await;
        if let Some(id) = known.id_of(rule) {
            return Ok(id);
        }
        // Others may have stored it since this client looked.
        self.load_acls().await?;
        if let Some(id) = known.id_of(rule) {
            return Ok(id);
        }
        let id = self.engine.insert_acl(rule).await?;
        known.add(id, rule.clone());
        Ok(id)
    }
}
