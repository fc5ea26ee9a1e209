//! ACL
use crate::error::Result;
use crate::meta::MetaTxn;
use crate::meta::record::Attr;
pub async fn inherit(tx: &mut MetaTxn<'_>, default_acl: u32, node: &mut Attr) -> Result<()> { let _ = (tx, default_acl, node); Ok(()) }
pub async fn chmod(tx: &mut MetaTxn<'_>, node: &mut Attr, mode: u16) -> Result<()> { let _ = (tx, node, mode); Ok(()) }
