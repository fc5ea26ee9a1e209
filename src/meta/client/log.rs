//! Lines of the change log for what is stored without a plan: sessions, quotas, dir stats.

use tracing::warn;

use super::Meta;
use crate::error::Result;
use crate::meta::Timestamp;
use crate::meta::engine::{Change, CommitError};
use crate::meta::record::changelog::{LogLine, LogOp};

impl Meta {
    /// Writes a line of its own, if the volume keeps a change log. The change itself is stored
    /// already, so a line that cannot be written is only missed.
    pub(super) async fn log_apart(&self, op: LogOp<'_>) {
        if !self.facts.setting().change_log {
            return;
        }
        let line = LogLine { at: Timestamp::now(), op };
        let line = line.render(self.facts.sid(), self.facts.next_log_number());
        if let Err(error) = self.write_line(&line).await {
            warn!(%error, line, "the change log lacks a line");
        }
    }

    async fn write_line(&self, line: &str) -> Result<()> {
        let written = self.engine.begin().commit(&[Change::Log(line.to_owned())]).await;
        match written {
            Ok(_) => Ok(()),
            Err(CommitError::Failed(error) | CommitError::Unknown(error)) => Err(error),
            // Nothing was read, so nothing can have changed.
            Err(CommitError::Conflict) => Err(crate::error::Error::Contended("a log line")),
        }
    }
}
