//! A page of a directory that is being removed: the names that are no directories go, and so do those
//! that lead nowhere.

use std::collections::HashSet;
use std::time::Duration;

use super::Remover;
use super::branches::Step;
use crate::error::{Error, Result};
use crate::meta::client::listing::{DirEntry, Pages};
use crate::meta::op::access;
use crate::meta::op::drop_name::DropName;
use crate::meta::op::unlink_many::UnlinkMany;
use crate::meta::record::{Entry, FileKind};
use crate::meta::{Ino, Name};

/// How often somebody who waits looks whether the removal is still wanted.
const LOOKING: Duration = Duration::from_millis(50);

impl Remover<'_> {
    /// Takes a page: the directories in it are answered, all else goes.
    pub(super) async fn page(&self, dir: Ino, mut pages: Pages, limit: usize) -> Result<Step> {
        let Some((mut entries, odd)) = pages.next_stored(self.meta, limit).await? else {
            return Ok(listed(pages, Vec::new(), 0, None));
        };
        if entries.is_empty() && odd.is_empty() {
            return Ok(listed(pages, Vec::new(), 0, None));
        }
        self.may_list(dir).await?;
        let mut lost = Vec::new();
        for odd in odd {
            self.meta.damage.odd_entry(dir, &odd.name);
            let name = Name::unchecked(odd.name);
            match odd.entry {
                Some(Entry { kind, ino }) => entries.push(DirEntry { name, ino, kind, attr: None }),
                None => lost.push((name, None)),
            }
        }
        let (dirs, others): (Vec<DirEntry>, Vec<DirEntry>) =
            entries.into_iter().partition(|entry| entry.kind == FileKind::Dir);
        let inos: Vec<Ino> = dirs.iter().map(|entry| entry.ino).collect();
        let mut own = Vec::new();
        for (entry, attr) in dirs.into_iter().zip(self.meta.attrs(&inos).await?) {
            if self.meta.lies_in(self.top, dir, entry.ino, attr.as_ref()) {
                own.push((entry.name, entry.ino));
            } else {
                lost.push((entry.name, Some(entry.ino)));
            }
        }
        let (mut count, mut failure) = (0, None);
        let known = |it: DirEntry| (it.name, Entry { kind: it.kind, ino: it.ino });
        let others = others.into_iter().map(known).collect();
        self.unlink_all(dir, others, &mut count, &mut failure).await?;
        for (name, ino) in lost {
            let op = DropName { caller: self.caller, dir, name: &name, ino };
            self.tell(self.meta.run(&op).await, &mut count, &mut failure)?;
        }
        Ok(listed(pages, own, count, failure))
    }

    /// Who may not list a directory does not know what is in it.
    async fn may_list(&self, dir: Ino) -> Result<()> {
        if !self.caller.check || self.caller.is_root() {
            return Ok(());
        }
        let Some(attr) = self.meta.attr_now(dir).await? else { return Ok(()) };
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
            let hour = self.meta.hour_for(dir, self.how.skip_trash).await?;
            let op = UnlinkMany { caller: self.caller, dir, names: &names, hour };
            let outcome = self.meta.run(&op).await;
            match (outcome, &names[..]) {
                // One of them is in the way of the others.
                (Err(error), names) if names.len() > 1 && self.can_part(&error) => {
                    let (one, two) = names.split_at(names.len() / 2);
                    parts.extend([two.to_vec(), one.to_vec()]);
                }
                (Err(Error::Damaged { .. }), [(name, Entry { ino, .. })]) => {
                    let op = DropName { caller: self.caller, dir, name, ino: Some(*ino) };
                    self.tell(self.meta.run(&op).await, count, failure)?;
                }
                // Someone else removed the directory.
                (Err(Error::NotFound), _) => return Ok(()),
                (outcome, _) => self.tell(outcome, count, failure)?,
            }
            self.wait_for_collection().await?;
        }
    }

    /// Counts what went; what did not is a failure of this page, if the rest is to go all the same.
    fn tell(
        &self,
        outcome: Result<u64>,
        count: &mut u64,
        failure: &mut Option<Error>,
    ) -> Result<()> {
        match outcome {
            Ok(gone) => {
                self.progress.did(gone);
                *count += gone;
                Ok(())
            }
            Err(error) if self.how.keeps_going && is_of_one(&error) => {
                failure.get_or_insert(error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn can_part(&self, error: &Error) -> bool {
        matches!(error, Error::Damaged { .. }) || (self.how.keeps_going && is_of_one(error))
    }

    /// The next names to remove together: no inode twice, since each removal changes its node.
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

    /// Data of removed files must not pile up; who gives up does not wait for it.
    async fn wait_for_collection(&self) -> Result<()> {
        loop {
            self.progress.check()?;
            let waiting = self.meta.wait_for_collection();
            if tokio::time::timeout(LOOKING, waiting).await.is_ok() {
                return Ok(());
            }
        }
    }
}

/// Whether a failure is that of one entry and not of the store or of the whole removal.
pub(super) fn is_of_one(error: &Error) -> bool {
    match error {
        Error::Damaged { .. } => true,
        Error::Interrupted | Error::Refused(_) | Error::ReadOnly => false,
        other => !other.is_fault(),
    }
}

fn listed(pages: Pages, dirs: Vec<(Name, Ino)>, count: u64, failure: Option<Error>) -> Step {
    Step::Listed { pages: Box::new(pages), dirs, count, failure }
}
