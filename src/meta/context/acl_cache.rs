//! The ACL rules that this client knows.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::meta::record::AclRule;
use crate::sync::RwLock;

/// ACL rules by id and ids by rule. Rules are shared, immutable and few, so none is ever evicted.
#[derive(Default)]
pub struct AclCache {
    rules: RwLock<KnownRules>,
    /// Held while a rule is being stored, so that one rule is stored once.
    pub(in crate::meta) storing: Mutex<()>,
}

#[derive(Default)]
struct KnownRules {
    by_id: HashMap<u32, Arc<AclRule>>,
    ids: HashMap<Arc<AclRule>, u32>,
}

impl AclCache {
    pub fn rule(&self, id: u32) -> Option<Arc<AclRule>> {
        self.rules.read().by_id.get(&id).cloned()
    }

    /// The id of an equal rule, if this client knows one.
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
