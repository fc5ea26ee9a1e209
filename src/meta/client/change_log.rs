//! The change log: lines for changes that are stored without a plan (sessions, quotas, dir stats),
//! and trimming.

use tracing::warn;

use crate::error::Result;
use crate::meta::Timestamp;
use crate::meta::client::Meta;
use crate::meta::engine::{Change, CommitError};
use crate::meta::record::changelog::{LogLine, LogOp};

impl Meta {
    /// Writes a line in a commit of its own, if the volume keeps a change log. The change itself is
    /// already stored, so a failure is only logged.
    pub(super) async fn log_separately(&self, op: LogOp<'_>) {
        if !self.context.setting().change_log {
            return;
        }
        let line = LogLine { at: Timestamp::now(), op };
        let line = line.render(self.context.sid(), self.context.next_log_number());
        if let Err(error) = self.commit_line(&line).await {
            warn!(%error, line, "cannot write a change log line");
        }
    }

    async fn commit_line(&self, line: &str) -> Result<()> {
        let written = self.engine.begin().commit(&[Change::Log(line.to_owned())]).await;
        match written {
            Ok(_) => Ok(()),
            Err(CommitError::Failed(error) | CommitError::Unknown(error)) => Err(error),
            // Nothing was read, so there are no guards.
            Err(CommitError::Conflict) => {
                Err(crate::error::Error::Contended("writing a change log line"))
            }
        }
    }

    /// Removes lines beyond the age and number that the setting allows. Returns 0: the number of
    /// removed lines is not known.
    pub(super) async fn trim_change_log(&self) -> Result<u64> {
        let setting = self.context.setting();
        let before = (setting.change_log_max_age > 0)
            .then(|| Timestamp::now().sec - setting.change_log_max_age);
        let keep = u64::try_from(setting.change_log_max_lines).ok().filter(|lines| *lines > 0);
        if setting.change_log && (before.is_some() || keep.is_some()) {
            self.engine.trim_change_log(before, keep).await?;
        }
        Ok(0)
    }
}
