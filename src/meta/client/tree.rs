//! Paths: from the root to a node, and back.

use super::names::is_trash_name;
use super::{Caller, Meta};
use crate::error::{Error, Result};
use crate::meta::engine::{Found, Key, Record};
use crate::meta::record::Attr;
use crate::meta::record::trash::TRASH_NAME;
use crate::meta::{Ino, Name};

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
        let Some(attr) = self.attr_now(ino).await? else { return Err(Error::NotFound) };
        if ino == Ino::ROOT {
            return Ok(vec!["/".to_owned()]);
        }
        let mut paths = Vec::new();
        for parent in self.parents_of(ino, &attr).await? {
            let Some(dir) = self.dir_path(parent).await? else { continue };
            for name in self.names_in(parent, ino).await? {
                paths.push(join(&dir, &name));
            }
        }
        paths.sort();
        Ok(paths)
    }

    /// Every path of a node as one sees it whose root is the directory `root`; none for each that
    /// lies outside of it.
    pub async fn paths_below(&self, root: Ino, ino: Ino) -> Result<Vec<Option<String>>> {
        if ino == root {
            return Ok(vec![Some("/".to_owned())]);
        }
        let paths = self.paths(ino).await?;
        if root == Ino::ROOT {
            return Ok(paths.into_iter().map(Some).collect());
        }
        let root = self.dir_path(root).await?.ok_or(Error::NotFound)?;
        let shown =
            paths.iter().map(|path| path.strip_prefix(&root).filter(|rest| rest.starts_with('/')));
        Ok(shown.map(|path| path.map(str::to_owned)).collect())
    }

    /// Whether a node lies below a directory, by any of its names.
    pub async fn is_below(&self, dir: Ino, ino: Ino) -> Result<bool> {
        let Some(attr) = self.attr_now(ino).await? else { return Ok(false) };
        let above = if attr.is_dir() { vec![ino] } else { self.parents_of(ino, &attr).await? };
        for parent in above {
            if self.ancestors(parent).await?.contains(&dir) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The path of a directory; none if it is cut off from the root.
    async fn dir_path(&self, dir: Ino) -> Result<Option<String>> {
        let mut names = Vec::new();
        let mut at = dir;
        while at != Ino::ROOT {
            let Some(attr) = self.attr_now(at).await? else { return Ok(None) };
            let Some(name) = self.names_in(attr.parent, at).await?.pop() else { return Ok(None) };
            names.push(name);
            at = attr.parent;
        }
        Ok(Some(names.iter().rev().fold("/".to_owned(), |path, name| join(&path, name))))
    }

    /// The names that a directory has for a node.
    async fn names_in(&self, dir: Ino, ino: Ino) -> Result<Vec<Name>> {
        if ino == Ino::TRASH {
            return Ok(vec![Name::new(TRASH_NAME)?]);
        }
        let mut names = Vec::new();
        let mut listing = self.list(dir, false);
        while let Some(page) = listing.next().await? {
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

fn join(dir: &str, name: &Name) -> String {
    if dir == "/" { format!("/{name}") } else { format!("{dir}/{name}") }
}
