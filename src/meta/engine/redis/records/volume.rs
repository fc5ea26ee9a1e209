//! The volume as a whole: its setting, formatting and removal.

use redis::Pipeline;

use super::super::{RedisEngine, scripts};
use crate::error::Result;
use crate::meta::Ino;
use crate::meta::record::Attr;

/// Keys or fields that one step of a scan visits.
pub(super) const SCAN_STEP: usize = 10_000;

impl RedisEngine {
    pub(crate) async fn stored_setting(&self) -> Result<Option<Vec<u8>>> {
        let key = self.keyspace.setting();
        let mut cmd = redis::cmd("GET");
        cmd.arg(&key);
        Ok(self.client.query_one(cmd).await?.bytes(&key)?.map(Into::into))
    }

    /// Stores setting and root atomically, so that no reader finds a setting without a root.
    pub(crate) async fn format(
        &self,
        json: &[u8],
        root: &Attr,
        trash: Option<&Attr>,
    ) -> Result<()> {
        let keys = [
            self.keyspace.setting(),
            self.keyspace.attr(Ino::ROOT),
            self.keyspace.attr(Ino::TRASH),
        ];
        let trash = trash.map(Attr::encode).unwrap_or_default();
        let mut cmd = scripts::FORMAT.call(&keys);
        cmd.arg(json).arg(&root.encode()[..]).arg(&trash[..]);
        self.client.query_one(cmd).await?.int(&keys[0])?;
        Ok(())
    }

    /// Removes the volume's keys and no others. The setting comes last: if the removal fails half way,
    /// there is still a volume to remove.
    pub(crate) async fn remove_all(&self) -> Result<()> {
        let setting = self.keyspace.setting();
        let mut cursor = 0;
        loop {
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(cursor).arg("MATCH").arg(format!("{}*", self.keyspace.prefix()));
            cmd.arg("COUNT").arg(SCAN_STEP);
            let (next, keys) = self.client.query_one(cmd).await?.page("SCAN")?;
            let own: Vec<_> = keys
                .iter()
                .filter(|key| self.keyspace.owns(key) && key[..] != *setting.as_bytes())
                .collect();
            if !own.is_empty() {
                let mut unlink = redis::cmd("UNLINK");
                for key in own {
                    unlink.arg(&key[..]);
                }
                self.client.query_one(unlink).await?.int("UNLINK")?;
            }
            if next == 0 {
                break;
            }
            cursor = next;
        }
        let mut pipe = Pipeline::new();
        pipe.cmd("DEL").arg(&setting);
        self.client.query(&pipe).await?.int(&setting)?;
        Ok(())
    }
}
