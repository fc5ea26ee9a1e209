//! The ACL rules this client knows: shared, immutable, small in number.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::meta::record::AclRule;

#[derive(Default)]
pub struct AclCache {
    rules: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    by_id: HashMap<u32, Arc<AclRule>>,
    ids: HashMap<Arc<AclRule>, u32>,
}

impl AclCache {
    pub fn rule(&self, id: u32) -> Option<Arc<AclRule>> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).by_id.get(&id).cloned()
    }

    /// The id of an equal rule, if one is known.
    pub fn id_of(&self, rule: &AclRule) -> Option<u32> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).ids.get(rule).copied()
    }

    pub fn add(&self, id: u32, rule: AclRule) {
        let mut known = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let rule = Arc::new(rule);
        known.ids.entry(Arc::clone(&rule)).or_insert(id);
        known.by_id.insert(id, rule);
    }
}
