//! Paths: from the root to a node, and back.

use std::collections::HashMap;

use futures::{StreamExt, TryStreamExt, stream};

use super::names::is_trash_name;
use super::ring::Ring;
use super::{Caller, Meta};
use crate::error::{Error, Result};
use crate::meta::engine::{Found, Key, Record};
use crate::meta::op::access;
use crate::meta::record::Attr;
use crate::meta::record::trash::TRASH_NAME;
use crate::meta::{Ino, Name};

/// Directories of a path whose names are looked for at once.
const NAMES_AT_ONCE: usize = 16;
/// Paths of one node that are looked for.
const MOST_PATHS: usize = 10_000;

impl Meta {
    /// The node at a path from the root.
    pub async fn resolve(&self, path: &str) -> Result<(Ino, Attr)> {
        let mut at = Ino::ROOT;
        let mut attr = self.attr_now(at).await?.ok_or(Error::NotFound)?;
        for name in names(path)? {
            if !attr.is_dir() {
                return Err(Error::NotDirectory);
            }
            (at, attr) = self.step(at, &name).await?.ok_or(Error::NotFound)?;
        }
        Ok((at, attr))
    }

    /// The directory at a path from the root; what is missing of it is created, open to all.
    pub async fn ensure_dir(&self, path: &str) -> Result<Ino> {
        let mut at = Ino::ROOT;
        for name in names(path)? {
            let attr;
            (at, attr) = match self.step(at, &name).await? {
                Some(found) => found,
                None => self.mkdir(&Caller::root(), at, &name, 0o777, 0).await?,
            };
            if !attr.is_dir() {
                return Err(Error::NotDirectory);
            }
        }
        if at.is_trash() {
            return Err(Error::bad_input(format!("path {path:?} leads into the trash")));
        }
        Ok(at)
    }

    /// Every path of a node from the root: more than one if it is hard-linked, none if
    /// it has no name any more.
    pub async fn paths(&self, ino: Ino) -> Result<Vec<String>> {
        Ok(self.paths_below(Ino::ROOT, ino).await?.into_iter().flatten().collect())
    }

    /// Every path of a node as one sees it whose root is the directory `root`; none for each that
    /// lies outside of it.
    pub async fn paths_below(&self, root: Ino, ino: Ino) -> Result<Vec<Option<String>>> {
        let Some(attr) = self.attr_now(ino).await? else { return Err(Error::NotFound) };
        if ino == root {
            return Ok(vec![Some("/".to_owned())]);
        }
        let mut paths = Vec::new();
        for parent in self.parents_of(ino, &attr).await? {
            let dir = self.dir_path(root, parent).await?;
            if dir.is_none() && root == Ino::ROOT {
                continue;
            }
            for name in self.names_in(parent, ino, usize::MAX).await? {
                paths.push(dir.as_ref().map(|dir| format!("{dir}/{name}")));
                if paths.len() >= MOST_PATHS {
                    break;
                }
            }
        }
        paths.sort_by(|a, b| (a.is_none(), a).cmp(&(b.is_none(), b)));
        Ok(paths)
    }

    /// Whether a node lies below a directory, by any of its names.
    pub async fn is_below(&self, dir: Ino, ino: Ino) -> Result<bool> {
        match self.reach(&Caller::root(), dir, ino).await {
            Ok(()) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a caller whose root is the directory `root` can come to a node by any of its names:
    /// `NotFound` if it does not lie below the root, `AccessDenied` if the caller may not
    /// search a directory on each way.
    pub async fn reach(&self, caller: &Caller, root: Ino, ino: Ino) -> Result<()> {
        let checks = caller.check && !caller.is_root();
        if ino == root || (root == Ino::ROOT && !checks) {
            return Ok(());
        }
        let attr = self.attr_now(ino).await?.ok_or(Error::NotFound)?;
        let mut outcome = Err(Error::NotFound);
        for parent in self.parents_of(ino, &attr).await? {
            match self.way_up(caller, root, parent).await {
                Ok(_) => return Ok(()),
                Err(Error::AccessDenied) => outcome = Err(Error::AccessDenied),
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        outcome
    }

    /// The directories from `dir` up to `root`, both included, all of which the caller must be allowed to
    /// search; `NotFound` if it does not lie there.
    async fn way_up(&self, caller: &Caller, root: Ino, dir: Ino) -> Result<Vec<Ino>> {
        let mut way = vec![dir];
        let (mut at, mut ring, mut read) = (dir, Ring::default(), HashMap::new());
        let mut searched = Ok(());
        loop {
            if !read.contains_key(&at) {
                let asked = self.facts.parents.guess(at);
                let attrs = self.attrs_now(&asked).await?;
                read = asked.into_iter().zip(attrs).collect();
            }
            let attr = read.remove(&at).flatten().ok_or(Error::NotFound)?;
            if searched.is_ok() {
                searched = match self.permits(caller, &attr, access::EXEC).await {
                    Err(error @ Error::AccessDenied) => Err(error),
                    other => other.map(Ok)?,
                };
            }
            // Who has the whole volume has its trash as well.
            let is_top = at == Ino::ROOT || (at == Ino::TRASH && root == Ino::ROOT);
            if at == root || (is_top && root == Ino::ROOT) {
                return searched.map(|()| way);
            }
            if is_top || attr.parent == Ino::NONE || ring.closes(attr.parent) {
                return Err(Error::NotFound);
            }
            at = attr.parent;
            way.push(at);
        }
    }

    /// The path of a directory as one sees it whose root is the directory `root`; none if it does not
    /// lie there.
    async fn dir_path(&self, root: Ino, dir: Ino) -> Result<Option<String>> {
        let way = match self.way_up(&Caller::root(), root, dir).await {
            Err(Error::NotFound) => return Ok(None),
            other => other?,
        };
        let pairs: Vec<(Ino, Ino)> = way.windows(2).map(|pair| (pair[1], pair[0])).collect();
        let names = stream::iter(pairs)
            .map(|(above, dir)| async move { self.names_in(above, dir, 1).await })
            .buffered(NAMES_AT_ONCE)
            .try_collect::<Vec<_>>();
        let mut path = String::new();
        for names in names.await?.iter().rev() {
            let Some(name) = names.first() else { return Ok(None) };
            path.push('/');
            path.push_str(&name.to_string());
        }
        Ok(Some(path))
    }

    /// Names that a directory has for a node, at most so many.
    async fn names_in(&self, dir: Ino, ino: Ino, most: usize) -> Result<Vec<Name>> {
        if ino == Ino::TRASH {
            return Ok(vec![Name::new(TRASH_NAME)?]);
        }
        let mut names = Vec::new();
        let mut listing = self.list(dir, false);
        while names.len() < most
            && let Some(page) = listing.next().await?
        {
            let found = page.into_iter().filter(|entry| entry.ino == ino);
            names.extend(found.map(|entry| entry.name));
        }
        Ok(names)
    }

    async fn parents_of(&self, ino: Ino, attr: &Attr) -> Result<Vec<Ino>> {
        if attr.parent != Ino::NONE {
            return Ok(vec![attr.parent]);
        }
        match self.engine.read(&[Key::Parents(ino)]).await?.pop() {
            Some(Record::Parents(parents)) => {
                Ok(parents.into_iter().map(|(parent, _)| parent).collect())
            }
            other => Err(Error::damaged("parents", format!("the engine answered {other:?}"))),
        }
    }

    async fn step(&self, dir: Ino, name: &Name) -> Result<Option<(Ino, Attr)>> {
        if is_trash_name(dir, name) {
            return Ok(self.attr_now(Ino::TRASH).await?.map(|attr| (Ino::TRASH, attr)));
        }
        match self.engine.read(&[Key::Lookup(dir, name.clone())]).await?.pop() {
            Some(Record::Lookup(None)) => Ok(None),
            Some(Record::Lookup(Some(Found { entry, attr: Some(attr) }))) => {
                Ok(Some((entry.ino, attr)))
            }
            Some(Record::Lookup(Some(Found { entry, attr: None }))) => Err(Error::damaged(
                format!("attr of inode {}", entry.ino),
                format!("missing, though {name} in directory {dir} names it"),
            )),
            other => Err(Error::damaged("entry", format!("the engine answered {other:?}"))),
        }
    }
}

fn names(path: &str) -> Result<Vec<Name>> {
    path.split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .map(|part| match part {
            ".." => Err(Error::bad_input(format!("path {path:?} leads upwards"))),
            part => Name::new(part),
        })
        .collect()
}
