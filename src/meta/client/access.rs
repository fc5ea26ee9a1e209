//! Whether someone may, where no operation asks by itself.

use super::{Caller, Meta};
use crate::error::Result;
use crate::meta::MetaTxn;
use crate::meta::op::access;
use crate::meta::record::Attr;

impl Meta {
    /// Whether a caller who is to be checked has all of `mask` (bits of [`access::READ`] and its kind)
    /// on a node with this attr.
    pub async fn permits(&self, caller: &Caller, attr: &Attr, mask: u16) -> Result<()> {
        let mut tx = MetaTxn::new(self.engine.begin(), &self.facts);
        access::permits(&mut tx, caller, attr, mask).await
    }
}
