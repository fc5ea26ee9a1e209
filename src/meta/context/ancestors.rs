//! Ancestors: the parent of each directory as this client last saw it, and the quotas above it.
//!
//! A change in a directory counts for every quota above it. Moves by other clients are not noticed
//! before the next heartbeat, which marks every link as uncertain: then the likely ancestors are
//! read again with one request.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::context::cycle::CycleDetector;
use crate::meta::context::quotas::Quotas;
use crate::meta::record::Attr;
use crate::sync::{Mutex, MutexGuard};

/// Directories remembered at most.
const LIMIT: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
/// Directories read by one request on the way to the root.
const BATCH: usize = 1024;

pub struct ParentCache {
    known: Mutex<ParentLinks>,
}

struct ParentLinks {
    links: LruCache<Ino, Link>,
    /// A link of an earlier heartbeat may be out of date.
    heartbeat: u64,
    /// Counts moves. A move invalidates every remembered list of quotas.
    moves: u64,
}

struct Link {
    parent: Ino,
    heartbeat: u64,
    above: Option<QuotaDirs>,
}

/// The directories with a quota, from a directory up to the root, the nearest first. Valid for one
/// count of moves and one generation of quotas.
struct QuotaDirs {
    as_of: (u64, u64),
    dirs: Arc<[Ino]>,
}

/// A walk from a directory up to the root that finds the quotas on the way.
pub struct AncestorWalk {
    at: Ino,
    /// Directories that were passed, the lowest first.
    passed: Vec<Ino>,
    cycle: CycleDetector,
}

/// The state of an [`AncestorWalk`].
#[derive(Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// The directories with quotas, the nearest first; none if the directory is gone or in the
    /// trash.
    Done(Arc<[Ino]>),
    /// The attrs of these directories are needed: the first for certain, the others most likely.
    NeedAttrs(Vec<Ino>),
}

impl Default for ParentCache {
    fn default() -> Self {
        let known = ParentLinks { links: LruCache::new(LIMIT), heartbeat: 0, moves: 0 };
        Self { known: Mutex::new(known) }
    }
}

impl ParentCache {
    /// Records the parent from an attr that was just read or written.
    pub fn observe(&self, dir: Ino, attr: &Attr) {
        if !attr.is_dir() || dir == Ino::ROOT {
            return;
        }
        if attr.parent == Ino::NONE {
            self.forget_moved(dir);
        } else {
            self.lock().set_parent(dir, attr.parent);
        }
    }

    /// Forgets the parent of a directory that moved, and the quotas above all directories.
    pub fn forget_moved(&self, dir: Ino) {
        let mut known = self.lock();
        known.moves += 1;
        known.links.pop(&dir);
    }

    /// Forgets a removed directory. It was empty, so no other directory is affected.
    pub fn forget_removed(&self, dir: Ino) {
        self.lock().links.pop(&dir);
    }

    /// Marks everything as uncertain.
    pub fn expire_all(&self) {
        let mut known = self.lock();
        known.heartbeat += 1;
        known.moves += 1;
    }

    /// The directories that most likely lead from `dir` towards the root, itself first, up to a
    /// limit.
    pub fn likely_ancestors(&self, dir: Ino) -> Vec<Ino> {
        self.lock().likely_ancestors(dir)
    }

    fn lock(&self) -> MutexGuard<'_, ParentLinks> {
        self.known.lock()
    }
}

impl ParentLinks {
    fn set_parent(&mut self, dir: Ino, parent: Ino) {
        let heartbeat = self.heartbeat;
        match self.links.get_mut(&dir) {
            Some(link) if link.parent == parent => link.heartbeat = heartbeat,
            Some(link) => {
                *link = Link { parent, heartbeat, above: None };
                self.moves += 1;
            }
            None => drop(self.links.put(dir, Link { parent, heartbeat, above: None })),
        }
    }

    fn likely_ancestors(&self, dir: Ino) -> Vec<Ino> {
        let mut likely_ancestors = vec![dir];
        let mut at = dir;
        while likely_ancestors.len() < BATCH
            && let Some(link) = self.links.peek(&at)
            && link.parent != Ino::ROOT
            && !link.parent.is_trash()
        {
            at = link.parent;
            likely_ancestors.push(at);
        }
        likely_ancestors
    }
}

impl AncestorWalk {
    pub fn from(dir: Ino) -> Self {
        Self { at: dir, passed: Vec::new(), cycle: CycleDetector::default() }
    }

    /// Walks on as far as the parents are known.
    pub fn advance(&mut self, parents: &ParentCache, quotas: &Quotas) -> WalkStep {
        let mut known = parents.lock();
        let as_of = (known.moves, quotas.generation());
        let top = loop {
            if self.at.is_trash() {
                return WalkStep::Done(Arc::default());
            }
            if self.at == Ino::ROOT {
                break if quotas.has_dir(Ino::ROOT) {
                    Arc::from([Ino::ROOT])
                } else {
                    Arc::default()
                };
            }
            let heartbeat = known.heartbeat;
            let link = known.links.get(&self.at).filter(|link| link.heartbeat == heartbeat);
            let Some(link) = link else {
                return WalkStep::NeedAttrs(known.likely_ancestors(self.at));
            };
            if let Some(above) = link.above.as_ref().filter(|above| above.as_of == as_of) {
                break Arc::clone(&above.dirs);
            }
            let parent = link.parent;
            if self.step_up(parent).is_err() {
                return WalkStep::Done(Arc::default());
            }
        };
        WalkStep::Done(known.remember_quotas(&self.passed, top, as_of, quotas))
    }

    /// Supplies the attrs that [`WalkStep::NeedAttrs`] asked for.
    pub fn supply_attrs(
        &mut self,
        parents: &ParentCache,
        asked: &[Ino],
        attrs: &[Option<Attr>],
    ) -> Result<()> {
        let found = asked.iter().zip(attrs).filter_map(|(dir, attr)| Some((*dir, attr.as_ref()?)));
        let found: HashMap<Ino, &Attr> = found.collect();
        for (dir, attr) in &found {
            parents.observe(*dir, attr);
        }
        match found.get(&self.at) {
            Some(attr) if attr.is_dir() && attr.parent != Ino::NONE => self.step_up(attr.parent),
            _ => Err(Error::NotFound),
        }
    }

    /// Fails with `NotFound` if the walk returns to a directory that it has passed.
    fn step_up(&mut self, parent: Ino) -> Result<()> {
        if self.cycle.revisits(parent) {
            return Err(Error::NotFound);
        }
        self.passed.push(std::mem::replace(&mut self.at, parent));
        Ok(())
    }
}

impl ParentLinks {
    /// Records the quotas above every directory of the walk; returns those of the lowest.
    fn remember_quotas(
        &mut self,
        passed: &[Ino],
        top: Arc<[Ino]>,
        as_of: (u64, u64),
        quotas: &Quotas,
    ) -> Arc<[Ino]> {
        let mut dirs = top;
        for dir in passed.iter().rev() {
            if quotas.has_dir(*dir) {
                dirs = std::iter::once(*dir).chain(dirs.iter().copied()).collect();
            }
            if let Some(link) = self.links.peek_mut(dir) {
                link.above = Some(QuotaDirs { as_of, dirs: Arc::clone(&dirs) });
            }
        }
        dirs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Timestamp;
    use crate::meta::record::{FileKind, Quota, QuotaKey};

    fn dir_in(parent: u64) -> Attr {
        Attr::new(FileKind::Dir, 0o755, 0, 0, Ino(parent), Timestamp::default())
    }

    fn quotas(dirs: &[u64]) -> Quotas {
        let quotas = Quotas::default();
        quotas.set_stored(
            dirs.iter().map(|dir| (QuotaKey::Dir(Ino(*dir)), Quota::UNLIMITED)).collect(),
        );
        quotas
    }

    fn walk_from(parents: &ParentCache, quotas: &Quotas, dir: u64) -> WalkStep {
        AncestorWalk::from(Ino(dir)).advance(parents, quotas)
    }

    fn done(dirs: &[u64]) -> WalkStep {
        WalkStep::Done(dirs.iter().copied().map(Ino).collect())
    }

    #[test]
    fn a_walk_over_known_parents_finds_the_quotas() {
        let (parents, quotas) = (ParentCache::default(), quotas(&[1, 3, 7]));
        parents.observe(Ino(3), &dir_in(2));
        assert_eq!(walk_from(&parents, &quotas, 3), WalkStep::NeedAttrs(vec![Ino(2)]));
        parents.observe(Ino(2), &dir_in(1));
        assert_eq!(walk_from(&parents, &quotas, 3), done(&[3, 1]));
        assert_eq!(walk_from(&parents, &quotas, 2), done(&[1]));
        assert_eq!(walk_from(&parents, &quotas, 1), done(&[1]));
    }

    #[test]
    fn a_move_changes_the_quotas_below() {
        let (parents, quotas) = (ParentCache::default(), quotas(&[5]));
        parents.observe(Ino(3), &dir_in(2));
        parents.observe(Ino(2), &dir_in(1));
        parents.observe(Ino(5), &dir_in(1));
        assert_eq!(walk_from(&parents, &quotas, 3), done(&[]));
        parents.forget_moved(Ino(2));
        parents.observe(Ino(2), &dir_in(5));
        assert_eq!(walk_from(&parents, &quotas, 3), done(&[5]));
        parents.observe(Ino(2), &dir_in(1));
        assert_eq!(walk_from(&parents, &quotas, 3), done(&[]));
    }

    #[test]
    fn a_new_quota_applies_to_everything_below() {
        let (parents, quotas) = (ParentCache::default(), quotas(&[5]));
        parents.observe(Ino(3), &dir_in(2));
        parents.observe(Ino(2), &dir_in(1));
        assert_eq!(walk_from(&parents, &quotas, 3), done(&[]));
        quotas.set_stored(vec![(QuotaKey::Dir(Ino(2)), Quota::UNLIMITED)]);
        assert_eq!(walk_from(&parents, &quotas, 3), done(&[2]));
        quotas.forget_dir(Ino(2));
        assert_eq!(walk_from(&parents, &quotas, 3), done(&[]));
    }

    #[test]
    fn uncertain_ancestors_are_requested_together() {
        let (parents, quotas) = (ParentCache::default(), quotas(&[2]));
        parents.observe(Ino(4), &dir_in(3));
        parents.observe(Ino(3), &dir_in(2));
        parents.observe(Ino(2), &dir_in(1));
        parents.expire_all();
        let mut walk = AncestorWalk::from(Ino(4));
        let asked = [Ino(4), Ino(3), Ino(2)];
        assert_eq!(walk.advance(&parents, &quotas), WalkStep::NeedAttrs(asked.to_vec()));
        let attrs = [Some(dir_in(3)), Some(dir_in(2)), Some(dir_in(1))];
        walk.supply_attrs(&parents, &asked, &attrs).unwrap();
        assert_eq!(walk.advance(&parents, &quotas), done(&[2]));
    }

    #[test]
    fn the_trash_is_below_no_quota() {
        let (parents, quotas) = (ParentCache::default(), quotas(&[1]));
        assert_eq!(walk_from(&parents, &quotas, Ino::TRASH.0), done(&[]));
        parents.observe(Ino(3), &dir_in(Ino::TRASH.0 + 1));
        assert_eq!(walk_from(&parents, &quotas, 3), done(&[]));
    }

    #[test]
    fn a_walk_in_a_cycle_ends() {
        let (parents, quotas) = (ParentCache::default(), quotas(&[2]));
        parents.observe(Ino(4), &dir_in(3));
        parents.observe(Ino(3), &dir_in(2));
        parents.observe(Ino(2), &dir_in(3));
        assert_eq!(walk_from(&parents, &quotas, 4), done(&[]));
    }

    #[test]
    fn a_deep_path_is_walked_once() {
        let (parents, quotas) = (ParentCache::default(), quotas(&[2]));
        for dir in 2..100_000 {
            parents.observe(Ino(dir), &dir_in(dir - 1));
            assert_eq!(walk_from(&parents, &quotas, dir), done(&[2]));
        }
    }
}
