//! Checking a path: its directories, and the objects of its files.

use anyhow::Context;
use futures::{StreamExt, stream};
use tokio::sync::mpsc;

use super::Fsck;
use super::block_check::BlockCheck;
use super::file_check::check_files;
use super::report::Report;
use crate::cli::progress::Progress;
use crate::cli::volume_scan::ScannedVolume;
use crate::meta::client::Progress as Cancel;

/// Files that wait for the check of their data.
const WAITING: usize = 1000;
/// Files whose data is checked together, and how many such groups at once.
const GROUP: usize = 200;
const GROUPS_AT_ONCE: usize = 2;

impl Fsck {
    pub(super) async fn check_path(
        &self,
        volume: &ScannedVolume,
        path: &str,
        report: &Report,
        cancel: &Cancel,
        shown: &Progress,
    ) -> anyhow::Result<()> {
        let listed = shown.tally("Listed slices", None);
        let found = shown.tally("Found blocks", Some("Found data"));
        let read = self.deep.then(|| shown.tally("Read blocks", Some("Read data")));
        let check = BlockCheck::new(volume, cancel, self.threads.into(), &found, true, read)?;
        let (sender, mut files) = mpsc::channel(WAITING);
        let walk = async {
            let sender = sender;
            let report = |finding| report.add_finding(finding);
            let options = self.check_options();
            let walk = volume.meta.check_tree(path, options, cancel, &report, Some(&sender));
            walk.await.with_context(|| format!("cannot check {path}"))
        };
        let data = async {
            let checks = stream::poll_fn(move |cx| files.poll_recv(cx))
                .ready_chunks(GROUP)
                .map(|files| check_files(&check, files, &listed, report))
                .buffer_unordered(GROUPS_AT_ONCE);
            let mut checks = std::pin::pin!(checks);
            while let Some(checked) = checks.next().await {
                checked?;
            }
            anyhow::Ok(())
        };
        let (walked, checked) = tokio::join!(walk, data);
        // If the check of the data has failed, the walk was only interrupted by that.
        checked?;
        walked?;
        report.set_nodes(cancel.done());
        report.set_found(found.count(), found.bytes());
        Ok(())
    }
}
