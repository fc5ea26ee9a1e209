//! Permission checks, and the calls that read and set the ACL rules of a node.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::op::attrs::access;
use crate::meta::op::attrs::acl::{Facl, SetFacl};
use crate::meta::record::{AclKind, AclRule, Attr};
use crate::meta::{Caller, Ino, MetaTxn};

impl Meta {
    /// Sets a rule of a node; an empty rule removes it. Returns the new attr: an access rule also
    /// changes the mode.
    pub async fn set_facl(
        &self,
        caller: &Caller,
        ino: Ino,
        kind: AclKind,
        rule: &AclRule,
    ) -> Result<Attr> {
        if !self.context.setting().enable_acl {
            return Err(Error::NotSupported);
        }
        if ino.is_trash() {
            return Err(Error::NotPermitted);
        }
        self.run(&SetFacl { caller, ino, kind, rule }).await
    }

    /// Reads a rule of a node; fails with `NoAttribute` if there is none.
    pub async fn facl(&self, ino: Ino, kind: AclKind) -> Result<Arc<AclRule>> {
        if !self.context.setting().enable_acl {
            return Err(Error::NoAttribute);
        }
        self.run(&Facl { ino, kind }).await
    }

    /// Loads all rules of the volume. A session starts with it if the volume has ACLs.
    pub async fn load_acls(&self) -> Result<()> {
        for (id, rule) in self.engine.acls().await? {
            self.context.acls.add(id, rule);
        }
        Ok(())
    }

    /// The id of a rule; stores the rule if no equal one exists. Another client may store an equal
    /// rule at the same time: two ids for one rule are harmless.
    pub(in crate::meta::client) async fn acl_id(&self, rule: &AclRule) -> Result<u32> {
        let known = &self.context.acls;
        let _storing = known.storing.lock().await;
        if let Some(id) = known.id_of(rule) {
            return Ok(id);
        }
        // Another client may have stored it since the rules were loaded.
        self.load_acls().await?;
        if let Some(id) = known.id_of(rule) {
            return Ok(id);
        }
        let id = self.engine.insert_acl(rule).await?;
        known.add(id, rule.clone());
        Ok(id)
    }

    /// Checks that a caller has all of `mask` (bits such as [`access::READ`]) on a node with this
    /// attr.
    pub async fn permits(&self, caller: &Caller, attr: &Attr, mask: u16) -> Result<()> {
        let mut tx = MetaTxn::new(self.engine.begin(), &self.context);
        access::check(&mut tx, caller, attr, mask).await
    }
}
