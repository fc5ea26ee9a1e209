//! Parents: which directory holds which, as far as this client has seen, and the quotas above them.
//!
//! A change in a directory counts for every quota above. What other clients move is unknown until the
//! next heartbeat makes everything a guess: then what was known is asked for again, all at once.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use super::quotas::Quotas;
use super::ring::Ring;
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::record::Attr;
use crate::sync::{Mutex, MutexGuard};

/// Directories remembered at most.
const LIMIT: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();
/// Directories asked for at once on the way up.
const STRIDE: usize = 1024;

pub struct Parents {
    known: Mutex<Known>,
}

struct Known {
    links: LruCache<Ino, Link>,
    /// Links of earlier heartbeats are guesses.
    heartbeat: u64,
    /// Of what is remembered about the quotas above: a move makes all of it void.
    moves: u64,
}

struct Link {
    parent: Ino,
    heartbeat: u64,
    above: Option<Above>,
}

/// The quotas of a directory and of all above it, the nearest first, as of some moves and quotas.
struct Above {
    as_of: (u64, u64),
    dirs: Arc<[Ino]>,
}

/// The way from a directory up to the root, to find the quotas on it.
pub struct Climb {
    at: Ino,
    /// Directories that were passed, the lowest first.
    passed: Vec<Ino>,
    ring: Ring,
}

/// How far a climb has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Directories with quotas, the nearest first; none for what is gone or lies in the trash.
    Done(Arc<[Ino]>),
    /// The attrs of these directories must be asked for: that of the first, others by guess.
    Ask(Vec<Ino>),
}

impl Default for Parents {
    fn default() -> Self {
        let known = Known { links: LruCache::new(LIMIT), heartbeat: 0, moves: 0 };
        Self { known: Mutex::new(known) }
    }
}

impl Parents {
    /// Takes note of a directory's attr just read or written.
    pub fn saw(&self, dir: Ino, attr: &Attr) {
        if !attr.is_dir() || dir == Ino::ROOT {
            return;
        }
        if attr.parent == Ino::NONE {
            self.moved(dir);
        } else {
            self.lock().learn(dir, attr.parent);
        }
    }

    /// What lies below it is below other directories now.
    pub fn moved(&self, dir: Ino) {
        let mut known = self.lock();
        known.moves += 1;
        known.links.pop(&dir);
    }

    /// It was removed, so nothing lies below it.
    pub fn removed(&self, dir: Ino) {
        self.lock().links.pop(&dir);
    }

    /// Whatever is known may have changed.
    pub fn doubt_all(&self) {
        let mut known = self.lock();
        known.heartbeat += 1;
        known.moves += 1;
    }

    /// The directories that most likely lie from `dir` upwards, itself first, some of them.
    pub fn guess(&self, dir: Ino) -> Vec<Ino> {
        self.lock().guess(dir)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

impl Known {
    fn learn(&mut self, dir: Ino, parent: Ino) {
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

    fn guess(&self, dir: Ino) -> Vec<Ino> {
        let mut guess = vec![dir];
        let mut at = dir;
        while guess.len() < STRIDE
            && let Some(link) = self.links.peek(&at)
            && link.parent != Ino::ROOT
            && !link.parent.is_trash()
        {
            at = link.parent;
            guess.push(at);
        }
        guess
    }
}

impl Climb {
    pub fn from(dir: Ino) -> Self {
        Self { at: dir, passed: Vec::new(), ring: Ring::default() }
    }

    /// Goes on as far as is known.
    pub fn go_on(&mut self, parents: &Parents, quotas: &Quotas) -> Step {
        let mut known = parents.lock();
        let as_of = (known.moves, quotas.generation());
        let top = loop {
            if self.at.is_trash() {
                return Step::Done(Arc::default());
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
            let Some(link) = link else { return Step::Ask(known.guess(self.at)) };
            if let Some(above) = link.above.as_ref().filter(|above| above.as_of == as_of) {
                break Arc::clone(&above.dirs);
            }
            let parent = link.parent;
            if self.pass(parent).is_err() {
                return Step::Done(Arc::default());
            }
        };
        Step::Done(known.remember(&self.passed, top, as_of, quotas))
    }

    /// Takes the answer for what [`Step::Ask`] asked for.
    pub fn hear(&mut self, parents: &Parents, asked: &[Ino], attrs: &[Option<Attr>]) -> Result<()> {
        let found = asked.iter().zip(attrs).filter_map(|(dir, attr)| Some((*dir, attr.as_ref()?)));
        let found: HashMap<Ino, &Attr> = found.collect();
        for (dir, attr) in &found {
            parents.saw(*dir, attr);
        }
        match found.get(&self.at) {
            Some(attr) if attr.is_dir() && attr.parent != Ino::NONE => self.pass(attr.parent),
            _ => Err(Error::NotFound),
        }
    }

    /// `NotFound` for a ring, which leads nowhere.
    fn pass(&mut self, parent: Ino) -> Result<()> {
        if self.ring.closes(parent) {
            return Err(Error::NotFound);
        }
        self.passed.push(std::mem::replace(&mut self.at, parent));
        Ok(())
    }
}

impl Known {
    /// Notes the quotas above for every directory on the way; answers those of the lowest.
    fn remember(
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
                link.above = Some(Above { as_of, dirs: Arc::clone(&dirs) });
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
        quotas.learn(dirs.iter().map(|dir| (QuotaKey::Dir(Ino(*dir)), Quota::UNLIMITED)).collect());
        quotas
    }

    fn climb(parents: &Parents, quotas: &Quotas, dir: u64) -> Step {
        Climb::from(Ino(dir)).go_on(parents, quotas)
    }

    fn done(dirs: &[u64]) -> Step {
        Step::Done(dirs.iter().copied().map(Ino).collect())
    }

    #[test]
    fn a_known_way_leads_to_the_quotas() {
        let (parents, quotas) = (Parents::default(), quotas(&[1, 3, 7]));
        parents.saw(Ino(3), &dir_in(2));
        assert_eq!(climb(&parents, &quotas, 3), Step::Ask(vec![Ino(2)]));
        parents.saw(Ino(2), &dir_in(1));
        assert_eq!(climb(&parents, &quotas, 3), done(&[3, 1]));
        assert_eq!(climb(&parents, &quotas, 2), done(&[1]));
        assert_eq!(climb(&parents, &quotas, 1), done(&[1]));
    }

    #[test]
    fn what_moved_takes_what_is_below_along() {
        let (parents, quotas) = (Parents::default(), quotas(&[5]));
        parents.saw(Ino(3), &dir_in(2));
        parents.saw(Ino(2), &dir_in(1));
        parents.saw(Ino(5), &dir_in(1));
        assert_eq!(climb(&parents, &quotas, 3), done(&[]));
        parents.moved(Ino(2));
        parents.saw(Ino(2), &dir_in(5));
        assert_eq!(climb(&parents, &quotas, 3), done(&[5]));
        parents.saw(Ino(2), &dir_in(1));
        assert_eq!(climb(&parents, &quotas, 3), done(&[]));
    }

    #[test]
    fn a_new_quota_counts_for_what_is_below() {
        let (parents, quotas) = (Parents::default(), quotas(&[5]));
        parents.saw(Ino(3), &dir_in(2));
        parents.saw(Ino(2), &dir_in(1));
        assert_eq!(climb(&parents, &quotas, 3), done(&[]));
        quotas.learn(vec![(QuotaKey::Dir(Ino(2)), Quota::UNLIMITED)]);
        assert_eq!(climb(&parents, &quotas, 3), done(&[2]));
        quotas.forget_dir(Ino(2));
        assert_eq!(climb(&parents, &quotas, 3), done(&[]));
    }

    #[test]
    fn what_is_doubted_is_asked_for_at_once() {
        let (parents, quotas) = (Parents::default(), quotas(&[2]));
        parents.saw(Ino(4), &dir_in(3));
        parents.saw(Ino(3), &dir_in(2));
        parents.saw(Ino(2), &dir_in(1));
        parents.doubt_all();
        let mut climb = Climb::from(Ino(4));
        let asked = [Ino(4), Ino(3), Ino(2)];
        assert_eq!(climb.go_on(&parents, &quotas), Step::Ask(asked.to_vec()));
        let attrs = [Some(dir_in(3)), Some(dir_in(2)), Some(dir_in(1))];
        climb.hear(&parents, &asked, &attrs).unwrap();
        assert_eq!(climb.go_on(&parents, &quotas), done(&[2]));
    }

    #[test]
    fn the_trash_is_below_no_quota() {
        let (parents, quotas) = (Parents::default(), quotas(&[1]));
        assert_eq!(climb(&parents, &quotas, Ino::TRASH.0), done(&[]));
        parents.saw(Ino(3), &dir_in(Ino::TRASH.0 + 1));
        assert_eq!(climb(&parents, &quotas, 3), done(&[]));
    }

    #[test]
    fn a_ring_ends() {
        let (parents, quotas) = (Parents::default(), quotas(&[2]));
        parents.saw(Ino(4), &dir_in(3));
        parents.saw(Ino(3), &dir_in(2));
        parents.saw(Ino(2), &dir_in(3));
        assert_eq!(climb(&parents, &quotas, 4), done(&[]));
    }

    #[test]
    fn a_deep_way_is_climbed_once() {
        let (parents, quotas) = (Parents::default(), quotas(&[2]));
        for dir in 2..100_000 {
            parents.saw(Ino(dir), &dir_in(dir - 1));
            assert_eq!(climb(&parents, &quotas, dir), done(&[2]));
        }
    }
}
