//! Trimming the change log to the age and number of lines that the setting allows.

use super::super::Meta;
use crate::error::Result;
use crate::meta::Timestamp;

impl Meta {
    /// Drops lines that are too old or too many. How many is not known.
    pub(in crate::meta::client) async fn trim_change_log(&self) -> Result<u64> {
        let setting = self.facts.setting();
        let before = (setting.change_log_max_age > 0)
            .then(|| Timestamp::now().sec - setting.change_log_max_age);
        let keep = u64::try_from(setting.change_log_max_lines).ok().filter(|lines| *lines > 0);
        if setting.change_log && (before.is_some() || keep.is_some()) {
            self.engine.trim_change_log(before, keep).await?;
        }
        Ok(0)
    }
}
