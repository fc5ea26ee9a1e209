//! The setting, and the volume as a whole.

use redis::Pipeline;

use super::{RedisEngine, script};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::record::Attr;

/// Keys looked at in one step of a scan.
pub(super) const SCAN_STEP: usize = 10_000;

impl RedisEngine {
    pub(super) async fn stored_setting(&self) -> Result<Option<Vec<u8>>> {
        let key = self.names.setting();
        let mut cmd = redis::cmd("GET");
        cmd.arg(&key);
        Ok(self.wire.ask_one(cmd).await?.bytes(&key)?.map(Into::into))
    }

    /// In one step, so that no reader finds a setting without a root.
    pub(super) async fn format(
        &self,
        json: &[u8],
        root: &Attr,
        trash: Option<&Attr>,
    ) -> Result<()> {
        let keys = [self.names.setting(), self.names.attr(Ino::ROOT), self.names.attr(Ino::TRASH)];
        let trash = trash.map(Attr::encode).unwrap_or_default();
        let mut cmd = script::FORMAT.call(&keys);
        cmd.arg(json).arg(&root.encode()[..]).arg(&trash[..]);
        self.wire.ask_one(cmd).await?.int(&keys[0])?;
        Ok(())
    }

    /// Removes the volume's keys and no others, the setting last: if it fails on the way, there is
    /// still a volume to remove.
    pub(super) async fn remove_all(&self) -> Result<()> {
        let setting = self.names.setting();
        let mut cursor = 0;
        loop {
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(cursor).arg("MATCH").arg(format!("{}*", self.names.prefix()));
            cmd.arg("COUNT").arg(SCAN_STEP);
            let (next, keys) = self.wire.ask_one(cmd).await?.page("SCAN")?;
            let own: Vec<_> = keys
                .iter()
                .filter(|key| self.names.owns(key) && key[..] != *setting.as_bytes())
                .collect();
            if !own.is_empty() {
                let mut unlink = redis::cmd("UNLINK");
                for key in own {
                    unlink.arg(&key[..]);
                }
                self.wire.ask_one(unlink).await?.int("UNLINK")?;
            }
            if next == 0 {
                break;
            }
            cursor = next;
        }
        let mut pipe = Pipeline::new();
        pipe.cmd("DEL").arg(&setting);
        self.wire.ask(&pipe).await?.int(&setting)?;
        Ok(())
    }
}
