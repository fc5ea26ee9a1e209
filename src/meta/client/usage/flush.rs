//! Sending usage that the store does not know yet, and reading it back: of the volume, and of quotas.

use crate::error::Result;
use crate::meta::client::Meta;
use crate::meta::record::{Counter, QuotaKey};

/// Quotas updated by one request.
const BATCH: usize = 1000;

impl Meta {
    /// Sends volume usage that the store does not know yet. What fails stays unsent.
    pub async fn flush_usage(&self) -> Result<()> {
        let usage = &self.context.usage;
        let _flushing = usage.flushing.lock().await;
        for (used, counter) in
            [(&usage.space, Counter::UsedSpace), (&usage.inodes, Counter::TotalInodes)]
        {
            let delta = used.unsent();
            if delta != 0 {
                let stored = self.engine.add_counter(counter, delta).await?;
                used.mark_sent(delta, stored);
            }
        }
        Ok(())
    }

    /// Reads the volume's usage from the store.
    pub(in crate::meta::client) async fn reload_usage(&self) -> Result<()> {
        let (space, inodes) = futures::try_join!(
            self.engine.counter(Counter::UsedSpace),
            self.engine.counter(Counter::TotalInodes)
        )?;
        self.context.usage.set_stored(space, inodes);
        Ok(())
    }

    /// Sends quota usage that the store does not know yet. What fails stays unsent.
    pub async fn flush_quotas(&self) -> Result<()> {
        self.settle_pending_charges().await?;
        let _exchange = self.context.quotas.exchange.lock().await;
        for deltas in self.context.quotas.unsent().chunks(BATCH) {
            self.engine.add_quota_usage(deltas).await?;
            self.context.quotas.mark_sent(deltas);
        }
        Ok(())
    }

    /// Reads all quotas in force from the store.
    pub(in crate::meta::client) async fn reload_quotas(&self) -> Result<()> {
        let setting = self.context.setting();
        let _exchange = self.context.quotas.exchange.lock().await;
        let mut loaded = Vec::new();
        if setting.dir_stats || setting.user_group_quota {
            loaded = self.engine.quotas().await?;
            loaded.retain(|(key, _)| match key {
                QuotaKey::Dir(_) => setting.dir_stats,
                QuotaKey::User(_) | QuotaKey::Group(_) => setting.user_group_quota,
            });
        }
        self.context.quotas.set_stored(loaded);
        Ok(())
    }
}
