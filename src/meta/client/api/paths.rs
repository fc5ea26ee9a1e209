//! Paths: finding the node of a path, and the paths of a node.

use std::collections::HashMap;

use futures::{StreamExt, TryStreamExt, stream};

use crate::error::{Error, Result};
use crate::meta::client::Meta;
use crate::meta::client::api::names::is_trash_name;
use crate::meta::context::cycle::CycleDetector;
use crate::meta::engine::{Found, Key, Record};
use crate::meta::op::attrs::access;
use crate::meta::record::Attr;
use crate::meta::record::trash::TRASH_NAME;
use crate::meta::{Caller, Ino, Name};

/// Directories of a path whose names are looked up concurrently.
const NAMES_AT_ONCE: usize = 16;
/// The most paths returned for one node.
const MAX_PATHS: usize = 10_000;

impl Meta {
    /// The node at a path from the root.
    pub async fn resolve(&self, path: &str) -> Result<(Ino, Attr)> {
        let mut at = Ino::ROOT;
        let mut attr = self.stored_attr(at).await?.ok_or(Error::NotFound)?;
        for name in split_path(path)? {
            if !attr.is_dir() {
                return Err(Error::NotDirectory);
            }
            (at, attr) = self.lookup_stored(at, &name).await?.ok_or(Error::NotFound)?;
        }
        Ok((at, attr))
    }

    /// The directory at a path from the root. Missing directories are created with mode 0777.
    pub async fn ensure_dir(&self, path: &str) -> Result<Ino> {
        let mut at = Ino::ROOT;
        for name in split_path(path)? {
            let attr;
            (at, attr) = match self.lookup_stored(at, &name).await? {
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

    /// All paths of a node from the root: more than one if it is hard-linked, none if it has no
    /// name.
    pub async fn paths(&self, ino: Ino) -> Result<Vec<String>> {
        Ok(self.paths_below(Ino::ROOT, ino).await?.into_iter().flatten().collect())
    }

    /// All paths of a node relative to the directory `root`; `None` for each that lies outside of
    /// it.
    pub async fn paths_below(&self, root: Ino, ino: Ino) -> Result<Vec<Option<String>>> {
        let Some(attr) = self.stored_attr(ino).await? else { return Err(Error::NotFound) };
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
                if paths.len() >= MAX_PATHS {
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

    /// Checks that a caller whose root is the directory `root` can reach a node by any of its
    /// names. Fails with `NotFound` if the node is not below the root, and with `AccessDenied` if
    /// every path has a directory that the caller may not search.
    pub async fn reach(&self, caller: &Caller, root: Ino, ino: Ino) -> Result<()> {
        let checks = caller.check && !caller.is_root();
        if ino == root || (root == Ino::ROOT && !checks) {
            return Ok(());
        }
        let attr = self.stored_attr(ino).await?.ok_or(Error::NotFound)?;
        let mut outcome = Err(Error::NotFound);
        for parent in self.parents_of(ino, &attr).await? {
            match self.ancestors_up_to(caller, root, parent).await {
                Ok(_) => return Ok(()),
                Err(Error::AccessDenied) => outcome = Err(Error::AccessDenied),
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        outcome
    }

    /// The directories from `dir` up to `root`, both included. The caller must be allowed to search
    /// all of them. Fails with `NotFound` if `dir` is not below `root`.
    async fn ancestors_up_to(&self, caller: &Caller, root: Ino, dir: Ino) -> Result<Vec<Ino>> {
        let mut dirs = vec![dir];
        let (mut at, mut cycle, mut read) = (dir, CycleDetector::default(), HashMap::new());
        let mut searched = Ok(());
        loop {
            if !read.contains_key(&at) {
                let asked = self.context.parents.likely_ancestors(at);
                let attrs = self.stored_attrs(&asked).await?;
                read = asked.into_iter().zip(attrs).collect();
            }
            let attr = read.remove(&at).flatten().ok_or(Error::NotFound)?;
            if searched.is_ok() {
                searched = match self.permits(caller, &attr, access::EXEC).await {
                    Err(error @ Error::AccessDenied) => Err(error),
                    other => other.map(Ok)?,
                };
            }
            // The trash belongs to the whole volume.
            let is_top = at == Ino::ROOT || (at == Ino::TRASH && root == Ino::ROOT);
            if at == root || (is_top && root == Ino::ROOT) {
                return searched.map(|()| dirs);
            }
            if is_top || attr.parent == Ino::NONE || cycle.revisits(attr.parent) {
                return Err(Error::NotFound);
            }
            at = attr.parent;
            dirs.push(at);
        }
    }

    /// The path of a directory relative to the directory `root`; none if it is not below it.
    async fn dir_path(&self, root: Ino, dir: Ino) -> Result<Option<String>> {
        let dirs = match self.ancestors_up_to(&Caller::root(), root, dir).await {
            Err(Error::NotFound) => return Ok(None),
            other => other?,
        };
        let pairs: Vec<(Ino, Ino)> = dirs.windows(2).map(|pair| (pair[1], pair[0])).collect();
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

    /// The names of a node in a directory, at most `most`.
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
            other => Err(Error::damaged("parents", format!("the engine returned {other:?}"))),
        }
    }

    async fn lookup_stored(&self, dir: Ino, name: &Name) -> Result<Option<(Ino, Attr)>> {
        if is_trash_name(dir, name) {
            return Ok(self.stored_attr(Ino::TRASH).await?.map(|attr| (Ino::TRASH, attr)));
        }
        match self.engine.read(&[Key::Lookup(dir, name.clone())]).await?.pop() {
            Some(Record::Lookup(None)) => Ok(None),
            Some(Record::Lookup(Some(Found { entry, attr: Some(attr) }))) => {
                Ok(Some((entry.ino, attr)))
            }
            Some(Record::Lookup(Some(Found { entry, attr: None }))) => Err(Error::damaged(
                format!("attr of inode {}", entry.ino),
                format!("missing, although {name} in directory {dir} refers to it"),
            )),
            other => Err(Error::damaged("entry", format!("the engine returned {other:?}"))),
        }
    }
}

fn split_path(path: &str) -> Result<Vec<Name>> {
    path.split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .map(|part| match part {
            ".." => Err(Error::bad_input(format!("path {path:?} must not contain '..'"))),
            part => Name::new(part),
        })
        .collect()
}
