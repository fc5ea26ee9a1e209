//! One page of a directory that is being removed: removes entries that are not directories, and
//! dangling ones.

use std::collections::HashSet;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::meta::client::api::listing::{DirEntry, Pages};
use crate::meta::client::tree::remove::Remover;
use crate::meta::client::tree::remove::pending_dirs::StepOutcome;
use crate::meta::op::attrs::access;
use crate::meta::op::names::remove_dangling::RemoveDanglingEntry;
use crate::meta::op::names::unlink_many::UnlinkMany;
use crate::meta::record::{Entry, FileKind};
use crate::meta::{Ino, Name};

/// How often a waiting removal checks whether it was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

impl Remover<'_> {
    /// Processes a page: removes all entries but directories, which it returns.
    pub(super) async fn page(
        &self,
        dir: Ino,
        mut pages: Pages,
        limit: usize,
    ) -> Result<StepOutcome> {
        let Some((mut entries, odd)) = pages.next_stored(self.meta, limit).await? else {
            return Ok(listed(pages, Vec::new(), 0, None));
        };
        if entries.is_empty() && odd.is_empty() {
            return Ok(listed(pages, Vec::new(), 0, None));
        }
        self.may_list(dir).await?;
        let mut dangling = Vec::new();
        for odd in odd {
            self.meta.damage.invalid_entry(dir, &odd.name);
            let name = Name::unchecked(odd.name);
            match odd.entry {
                Some(Entry { kind, ino }) => entries.push(DirEntry { name, ino, kind, attr: None }),
                None => dangling.push((name, None)),
            }
        }
        let (dirs, others): (Vec<DirEntry>, Vec<DirEntry>) =
            entries.into_iter().partition(|entry| entry.kind == FileKind::Dir);
        let inos: Vec<Ino> = dirs.iter().map(|entry| entry.ino).collect();
        let mut own = Vec::new();
        for (entry, attr) in dirs.into_iter().zip(self.meta.attrs(&inos).await?) {
            if self.meta.is_child_of(self.top, dir, entry.ino, attr.as_ref()) {
                own.push((entry.name, entry.ino));
            } else {
                dangling.push((entry.name, Some(entry.ino)));
            }
        }
        let (mut count, mut failure) = (0, None);
        let known = |it: DirEntry| (it.name, Entry { kind: it.kind, ino: it.ino });
        let others = others.into_iter().map(known).collect();
        self.unlink_all(dir, others, &mut count, &mut failure).await?;
        for (name, ino) in dangling {
            let op = RemoveDanglingEntry { caller: self.caller, dir, name: &name, ino };
            self.record_outcome(self.meta.run(&op).await, &mut count, &mut failure)?;
        }
        Ok(listed(pages, own, count, failure))
    }

    /// A caller that may not list a directory must not learn what is in it.
    async fn may_list(&self, dir: Ino) -> Result<()> {
        if !self.caller.check || self.caller.is_root() {
            return Ok(());
        }
        let Some(attr) = self.meta.stored_attr(dir).await? else { return Ok(()) };
        self.meta.permits(self.caller, &attr, access::READ).await
    }

    async fn unlink_all(
        &self,
        dir: Ino,
        names: Vec<(Name, Entry)>,
        count: &mut u64,
        failure: &mut Option<Error>,
    ) -> Result<()> {
        let mut left = names;
        let mut parts = Vec::new();
        loop {
            let Some(names) = parts.pop().or_else(|| self.take_batch(&mut left)) else {
                return Ok(());
            };
            self.progress.check()?;
            let hour = self.meta.hour_dir_for(dir, self.how.skip_trash).await?;
            let op = UnlinkMany { caller: self.caller, dir, names: &names, hour };
            let outcome = self.meta.run(&op).await;
            match (outcome, &names[..]) {
                // One of them prevents the removal of the others.
                (Err(error), names) if names.len() > 1 && self.can_split(&error) => {
                    let (one, two) = names.split_at(names.len() / 2);
                    parts.extend([two.to_vec(), one.to_vec()]);
                }
                (Err(Error::Damaged { .. }), [(name, Entry { ino, .. })]) => {
                    let op =
                        RemoveDanglingEntry { caller: self.caller, dir, name, ino: Some(*ino) };
                    self.record_outcome(self.meta.run(&op).await, count, failure)?;
                }
                // Another client removed the directory.
                (Err(Error::NotFound), _) => return Ok(()),
                (outcome, _) => self.record_outcome(outcome, count, failure)?,
            }
            self.wait_for_deletions().await?;
        }
    }

    /// Counts removed entries. A failure is recorded if the removal is to continue, and returned
    /// otherwise.
    fn record_outcome(
        &self,
        outcome: Result<u64>,
        count: &mut u64,
        failure: &mut Option<Error>,
    ) -> Result<()> {
        match outcome {
            Ok(gone) => {
                self.progress.add_done(gone);
                *count += gone;
                Ok(())
            }
            Err(error) if self.how.keeps_going && concerns_one_entry(&error) => {
                failure.get_or_insert(error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn can_split(&self, error: &Error) -> bool {
        matches!(error, Error::Damaged { .. })
            || (self.how.keeps_going && concerns_one_entry(error))
    }

    /// Takes the next names to remove together: no inode twice, since each removal changes its
    /// node.
    fn take_batch(&self, left: &mut Vec<(Name, Entry)>) -> Option<Vec<(Name, Entry)>> {
        let size = self.meta.engine.properties().batch;
        let mut inos = HashSet::new();
        let mut batch = Vec::new();
        let mut rest = Vec::new();
        for item in left.drain(..) {
            if batch.len() < size && inos.insert(item.1.ino) {
                batch.push(item);
            } else {
                rest.push(item);
            }
        }
        *left = rest;
        (!batch.is_empty()).then_some(batch)
    }

    /// Waits so that data of removed files does not pile up; ends early if the removal is
    /// cancelled.
    async fn wait_for_deletions(&self) -> Result<()> {
        loop {
            self.progress.check()?;
            let waiting = self.meta.wait_for_deletions();
            if tokio::time::timeout(CANCEL_CHECK, waiting).await.is_ok() {
                return Ok(());
            }
        }
    }
}

/// Whether a failure concerns one entry, and not the store or the whole removal.
pub(super) fn concerns_one_entry(error: &Error) -> bool {
    match error {
        Error::Damaged { .. } => true,
        Error::Interrupted | Error::Refused(_) | Error::ReadOnly => false,
        other => !other.is_fault(),
    }
}

fn listed(pages: Pages, dirs: Vec<(Name, Ino)>, count: u64, failure: Option<Error>) -> StepOutcome {
    StepOutcome::Listed { pages: Box::new(pages), dirs, count, failure }
}
