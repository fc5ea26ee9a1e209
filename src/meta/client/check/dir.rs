//! Checking one directory: its attr, link count, parent and usage.

use super::tree::{Checker, DirVisit, Place};
use super::{Outcome, Problem};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::client::Meta;
use crate::meta::record::attr::align4k;
use crate::meta::record::{Attr, DirStat, FileKind};

/// How often a directory is counted again whose records seem wrong: another client may change it.
const MAX_ATTEMPTS: usize = 3;

/// What the entries of a directory add up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub dirs: u32,
    pub usage: DirStat,
}

impl Totals {
    /// Counts an entry.
    pub fn add(&mut self, kind: FileKind, attr: Option<&Attr>) {
        self.dirs += u32::from(kind == FileKind::Dir);
        let length = attr.filter(|attr| attr.is_file()).map_or(0, |attr| attr.length);
        self.usage += DirStat { length: length.cast_signed(), space: align4k(length), inodes: 1 };
    }

    /// The link count of the directory.
    pub fn links(&self) -> u32 {
        self.dirs.saturating_add(2)
    }
}

impl Checker<'_> {
    /// Checks the records of a directory whose entries were read.
    pub(super) async fn check_dir(&self, visit: &DirVisit) -> Result<()> {
        let attr = self.meta.attrs(&[visit.ino]).await?.pop().flatten();
        if attr.is_none() && self.is_gone(visit).await? {
            return Ok(());
        }
        match attr {
            None => self.rebuild_attr(visit).await?,
            Some(attr) => {
                self.check_place(visit.own_path(), visit.ino, Some(&attr), visit.place.as_ref())
                    .await?;
                self.check_links(visit, &attr).await?;
            }
        }
        self.check_usage(visit).await
    }

    async fn check_links(&self, visit: &DirVisit, attr: &Attr) -> Result<()> {
        let mut counted = visit.totals;
        let mut stored = attr.clone();
        for _ in 0..MAX_ATTEMPTS {
            if stored.nlink == counted.links() {
                return Ok(());
            }
            let Some((attr, totals)) = self.meta.recount(visit.ino).await? else { return Ok(()) };
            (stored, counted) = (attr, totals);
        }
        if stored.nlink == counted.links() {
            return Ok(());
        }
        let problem = Problem::Links { stored: stored.nlink, counted: counted.links() };
        let outcome = self.repair_links(visit.ino).await;
        self.report(visit.ino, visit.own_path(), problem, outcome);
        Ok(())
    }

    async fn check_usage(&self, visit: &DirVisit) -> Result<()> {
        let (meta, ino) = (self.meta, visit.ino);
        if !meta.context.setting().dir_stats {
            return Ok(());
        }
        let problem = match meta.stored_dir_stat(ino).await? {
            None => Problem::MissingStat,
            Some(stored) if self.options.sync_dir_stat => {
                if stored == visit.totals.usage {
                    return Ok(());
                }
                // Another client may have changed it since its entries were read.
                let Some((_, Totals { usage: counted, .. })) = meta.recount(ino).await? else {
                    return Ok(());
                };
                if stored == counted {
                    return Ok(());
                }
                Problem::Stat { stored, counted }
            }
            Some(_) => return Ok(()),
        };
        let outcome = self.repair_usage(ino).await;
        self.report(ino, visit.own_path(), problem, outcome);
        Ok(())
    }

    /// Checks that a node stores the directory that lists it as its parent.
    pub(super) async fn check_place(
        &self,
        path: &str,
        ino: Ino,
        attr: Option<&Attr>,
        place: Option<&Place>,
    ) -> Result<()> {
        let Some(place) = place.filter(|place| !place.lister.is_trash() && ino != Ino::TRASH)
        else {
            return Ok(());
        };
        let is_right = |attr: &Attr| {
            let is_linked = attr.parent == Ino::NONE || (!attr.is_dir() && attr.nlink > 1);
            attr.parent == place.lister || (is_linked && !attr.is_dir())
        };
        if attr.is_some_and(is_right) {
            return Ok(());
        }
        // It may have been moved or removed since it was listed.
        let entry = self.meta.stored_entry(place.lister, &place.name).await?;
        if entry.is_none_or(|entry| entry.ino != ino) {
            return Ok(());
        }
        match self.meta.attrs(&[ino]).await?.pop().flatten() {
            Some(attr) if is_right(&attr) => {}
            Some(attr) => {
                let problem = Problem::Parent { stored: attr.parent, lister: place.lister };
                let outcome = self.repair_parent(ino, &attr, place).await;
                self.report(ino, path, problem, outcome);
            }
            None => self.report(ino, path, Problem::MissingNode, Outcome::NotRepairable),
        }
        Ok(())
    }

    /// Whether a directory without an attr was removed since it was listed.
    async fn is_gone(&self, visit: &DirVisit) -> Result<bool> {
        let Some(place) = &visit.place else { return Ok(false) };
        let entry = self.meta.stored_entry(place.lister, &place.name).await?;
        Ok(entry.is_none_or(|entry| entry.ino != visit.ino))
    }
}

impl Meta {
    /// Counts the entries of a directory, together with its attr; none if it is gone.
    pub(super) async fn recount(&self, dir: Ino) -> Result<Option<(Attr, Totals)>> {
        for attempt in 1.. {
            let Some(before) = self.stored_attr(dir).await? else { return Ok(None) };
            let totals = self.count_entries(dir).await?;
            let after = self.stored_attr(dir).await?;
            if after.as_ref() == Some(&before) || attempt == MAX_ATTEMPTS {
                return Ok(Some((before, totals)));
            }
        }
        Err(Error::internal("counting a directory", "no attempt was made"))
    }

    pub(super) async fn count_entries(&self, dir: Ino) -> Result<Totals> {
        let mut totals = Totals::default();
        let mut listing = self.list(dir, false);
        let entry_needs_node = self.engine.properties().entry_needs_node;
        while let Some(page) = listing.next().await? {
            // As in the Go client, an entry without a node is none on SQL, except for the links.
            let inos: Vec<Ino> = page.iter().map(|entry| entry.ino).collect();
            for (entry, attr) in page.iter().zip(self.attrs(&inos).await?) {
                if attr.is_some() || !entry_needs_node {
                    totals.add(entry.kind, attr.as_ref());
                } else {
                    totals.dirs += u32::from(entry.kind == FileKind::Dir);
                }
            }
        }
        Ok(totals)
    }
}
