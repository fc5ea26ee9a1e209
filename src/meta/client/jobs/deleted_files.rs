//! The job on deleted files: data of files whose deletion was left off.

use futures::{StreamExt, stream};
use tracing::warn;

use crate::error::Result;
use crate::meta::Meta;

/// Younger ones are with the client that removed them.
const AGE: i64 = 3600;
const LIMIT: usize = 600_000;
const AT_ONCE: usize = 10;

impl Meta {
    /// Deletes the data of files removed more than an hour before `now`. Answers how many are done.
    pub async fn clean_deleted_files(&self, now: i64) -> Result<u64> {
        let files = self.engine.deleted_files(now - AGE, LIMIT).await?;
        let done = stream::iter(files)
            .take_while(|_| std::future::ready(!self.is_closing()))
            .map(|file| async move {
                match self.delete_file_data(file.ino, file.length).await {
                    Ok(()) => 1,
                    Err(error) => {
                        warn!(ino = file.ino.0, %error, "the data of a removed file stays");
                        0
                    }
                }
            })
            .buffer_unordered(AT_ONCE)
            .fold(0, |sum, one| async move { sum + one })
            .await;
        Ok(done)
    }
}
