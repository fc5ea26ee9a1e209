//! The job on deleted files: data of files whose deletion was left off.

use crate::error::Result;
use crate::meta::Meta;
use futures::{StreamExt, stream};

/// Younger ones are with the client that removed them.
const AGE: i64 = 3600;
const LIMIT: usize = 600_000;
const GROUP: usize = 100;
const AT_ONCE: usize = 4;

impl Meta {
    /// Deletes the data of files removed more than an hour before `now`. Answers how many are done.
    pub async fn clean_deleted_files(&self, now: i64) -> Result<u64> {
        let files = self.engine.deleted_files(now - AGE, LIMIT).await?;
        let files: Vec<_> = files.iter().map(|file| (file.ino, file.length)).collect();
        let groups: Vec<_> = files.chunks(GROUP).map(<[_]>::to_vec).collect();
        let done = stream::iter(groups)
            .take_while(|_| std::future::ready(!self.is_closing()))
            .map(|group| async move { self.delete_group(&group).await })
            .buffer_unordered(AT_ONCE)
            .fold(0, |sum, one| async move { sum + one })
            .await;
        Ok(done)
    }
}
