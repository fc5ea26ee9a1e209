//! The trees of a JSON dump: nested directories, read without recursion.
//!
//! A dump is not trusted: each directory must come once, and no name or number may be one that a
//! volume cannot have.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;

use super::model::{DumpedAcl, DumpedAttr, DumpedChunk, DumpedXattr, kind_named};
use super::scanner::Scanner;
use crate::error::Result;
use crate::meta::dump::escape::unescape;
use crate::meta::dump::id_set::IdSet;
use crate::meta::dump::load::Emitter;
use crate::meta::engine::Stored;
use crate::meta::record::{
    AclRule, Attr, CHUNK_SIZE, DirStat, Entry, FileKind, Quota, QuotaKey, Slice, SliceSize,
};
use crate::meta::{Ino, Name};

/// Names of one directory that are remembered to find duplicates. Beyond, they must be in order.
const REMEMBERED: usize = 1 << 20;

/// What all trees of a dump add up to.
#[derive(Debug, Default)]
pub struct Totals {
    pub used_space: i64,
    pub used_inodes: i64,
    pub next_inode: i64,
    pub next_slice: i64,
    pub next_trash: i64,
    /// Nodes with several names.
    pub links: BTreeMap<Ino, Link>,
    /// Slices with several references.
    pub shared_slices: HashMap<SliceSize, i64>,
    /// Space and inodes of every user and group.
    pub owners: HashMap<QuotaKey, (i64, i64)>,
    /// Each rule once, with its id.
    pub rules: HashMap<AclRule, u32>,
    nodes: IdSet,
    slices: IdSet,
}

/// The further parents of a node; the first one is in its attr.
#[derive(Debug)]
pub struct Link {
    pub kind: FileKind,
    pub parents: Vec<Ino>,
}

pub struct TreeParser<'a> {
    totals: &'a mut Totals,
    quotas: &'a mut HashMap<QuotaKey, Quota>,
    top: Ino,
    hasher: RandomState,
}

/// An entry that is being read.
#[derive(Default)]
struct Frame {
    name: Option<Name>,
    parent: u64,
    has_fields: bool,
    has_entries: bool,
    in_entries: bool,
    attr: Option<(DumpedAttr, FileKind)>,
    is_first_name: bool,
    symlink: Option<Vec<u8>>,
    xattrs: Vec<DumpedXattr>,
    chunks: Vec<DumpedChunk>,
    access_acl: Option<DumpedAcl>,
    default_acl: Option<DumpedAcl>,
    stat: DirStat,
    /// Space and inodes of the subdirectories' entries, at any depth.
    below: (i64, i64),
    subdirs: u32,
    last_name: Option<Name>,
    names: HashSet<u64>,
}

impl Frame {
    fn ino(&self) -> Ino {
        self.attr.as_ref().map_or(Ino::NONE, |(attr, _)| Ino(attr.inode))
    }
}

impl<'a> TreeParser<'a> {
    pub fn new(totals: &'a mut Totals, quotas: &'a mut HashMap<QuotaKey, Quota>, top: Ino) -> Self {
        Self { totals, quotas, top, hasher: RandomState::new() }
    }

    pub fn parse<R: Read>(&mut self, scanner: &mut Scanner<R>, out: &mut Emitter) -> Result<()> {
        scanner.begin_object()?;
        let mut path = vec![Frame { parent: Ino::ROOT.0, ..Frame::default() }];
        while let Some(last) = path.len().checked_sub(1) {
            let frame = &mut path[last];
            if frame.in_entries {
                let mut is_first = !frame.has_entries;
                let name = scanner.next_key(&mut is_first)?;
                frame.has_entries = true;
                match name {
                    None => frame.in_entries = false,
                    Some(name) => {
                        let below = self.begin(frame, &name).map_err(|what| scanner.error(what))?;
                        scanner.begin_object()?;
                        path.push(below);
                    }
                }
                continue;
            }
            let mut is_first = !frame.has_fields;
            let field = scanner.next_key(&mut is_first)?;
            frame.has_fields = true;
            let Some(field) = field else {
                let frame = path.pop().unwrap_or_default();
                self.end(frame, &mut path, out, scanner)?;
                continue;
            };
            self.field(frame, &field, scanner)?;
        }
        Ok(())
    }

    /// Reads one field of an entry.
    fn field<R: Read>(
        &mut self,
        frame: &mut Frame,
        field: &str,
        scanner: &mut Scanner<R>,
    ) -> Result<()> {
        match field {
            "attr" => {
                if frame.attr.is_some() {
                    return Err(scanner.error("a second attr"));
                }
                let attr: DumpedAttr = scanner.value()?;
                self.begin_node(frame, attr).map_err(|what| scanner.error(what))?;
            }
            "symlink" => frame.symlink = Some(unescape(&scanner.value::<String>()?)),
            "xattrs" => frame.xattrs = scanner.value::<Option<_>>()?.unwrap_or_default(),
            "chunks" => frame.chunks = scanner.value::<Option<_>>()?.unwrap_or_default(),
            "posix_acl_access" => frame.access_acl = scanner.value()?,
            "posix_acl_default" => frame.default_acl = scanner.value()?,
            "entries" => {
                match &frame.attr {
                    None => return Err(scanner.error("attr must come before entries")),
                    Some((_, FileKind::Dir)) if !frame.has_entries => {}
                    Some((_, FileKind::Dir)) => return Err(scanner.error("second entries")),
                    Some((attr, _)) => {
                        let what = format!("inode {} has entries and is no directory", attr.inode);
                        return Err(scanner.error(what));
                    }
                }
                frame.in_entries = scanner.begin_object_or_null()?;
            }
            _ => scanner.skip_value()?,
        }
        Ok(())
    }

    /// Begins an entry of a directory.
    fn begin(&self, dir: &mut Frame, name: &str) -> Result<Frame, String> {
        let ino = dir.ino();
        let name = Name::new(unescape(name))
            .map_err(|error| format!("entry {name:?} of inode {ino}: {error}"))?;
        let is_in_order = dir.last_name.as_ref().is_none_or(|last| *last < name);
        let is_known = dir.names.len() < REMEMBERED && {
            let hash = self.hasher.hash_one(name.as_bytes());
            !dir.names.insert(hash)
        };
        if is_known || (!is_in_order && dir.names.len() >= REMEMBERED) {
            return Err(format!("entry {name:?} of inode {ino}: a second one of that name"));
        }
        if is_in_order {
            dir.last_name = Some(name.clone());
        }
        Ok(Frame { name: Some(name), parent: ino.0, ..Frame::default() })
    }

    /// Checks the attr of an entry, and whether its node is new.
    fn begin_node(&mut self, frame: &mut Frame, mut attr: DumpedAttr) -> Result<(), String> {
        let kind = kind_named(&attr.kind)
            .ok_or_else(|| format!("inode {}: unknown type {:?}", attr.inode, attr.kind))?;
        let ino = attr.inode;
        if frame.name.is_none() {
            if kind != FileKind::Dir {
                return Err(format!("inode {ino}: the top of a tree must be a directory"));
            }
            // The top of a dump of a subdirectory becomes the root.
            attr.inode = self.top.0;
        } else if ino <= Ino::ROOT.0 || ino == Ino::TRASH.0 || ino > i64::MAX as u64 {
            return Err(format!("inode {ino} cannot have a name"));
        } else if Ino(ino).is_sub_trash() && Ino(frame.parent) != Ino::TRASH {
            return Err(format!("inode {ino} can only be in the trash"));
        }
        if attr.length > i64::MAX as u64 {
            return Err(format!("inode {ino}: length {} is impossible", attr.length));
        }
        if [attr.atimensec, attr.mtimensec, attr.ctimensec].iter().any(|nsec| *nsec > 999_999_999) {
            return Err(format!("inode {ino}: a time has more than 999999999 nanoseconds"));
        }
        frame.is_first_name = self.totals.nodes.insert(attr.inode);
        if kind == FileKind::Dir && !frame.is_first_name {
            return Err(format!("directory {ino} comes twice"));
        }
        frame.attr = Some((attr, kind));
        Ok(())
    }

    /// Writes an entry that was read completely.
    fn end<R: Read>(
        &mut self,
        mut frame: Frame,
        path: &mut [Frame],
        out: &mut Emitter,
        scanner: &Scanner<R>,
    ) -> Result<()> {
        let Some((dumped, kind)) = frame.attr.take() else {
            return Err(scanner.error("an entry without attr"));
        };
        let ino = Ino(dumped.inode);
        let parent = Ino(frame.parent);
        let attr = dumped.attr(kind, parent);
        if let (Some(dir), Some(name)) = (path.last_mut(), frame.name.take()) {
            out.emit(Stored::Entry(parent, name, Entry { kind, ino }))?;
            let length = if kind == FileKind::File { attr.length.cast_signed() } else { 0 };
            let stat = &mut dir.stat;
            stat.length = stat.length.saturating_add(length);
            stat.space = stat.space.saturating_add(attr.space());
            stat.inodes += 1;
            dir.subdirs += u32::from(kind == FileKind::Dir);
        }
        if kind == FileKind::Dir {
            self.charge_quota(ino, &frame, path.last_mut());
        }
        if !frame.is_first_name {
            let new = || Link { kind, parents: Vec::new() };
            let link = self.totals.links.entry(ino).or_insert_with(new);
            if link.kind != kind {
                return Err(scanner.error(format!("inode {ino} comes with two types")));
            }
            link.parents.push(parent);
            return Ok(());
        }
        out.progress().add(1);
        self.count(ino, &attr);
        // Only to say that there is none.
        if ino == Ino::TRASH && frame.stat.is_zero() && dumped == DumpedAttr::no_trash() {
            return Ok(());
        }
        self.node(ino, attr, frame, out).map_err(|error| match error {
            crate::error::Error::BadInput(what) => scanner.error(what),
            other => other,
        })
    }

    /// Writes a node and what belongs to it.
    fn node(&mut self, ino: Ino, mut attr: Attr, frame: Frame, out: &mut Emitter) -> Result<()> {
        match attr.kind {
            FileKind::Dir => {
                attr.nlink = if ino.is_trash() { 2 } else { 2u32.saturating_add(frame.subdirs) };
                out.emit(Stored::DirStat(ino, frame.stat))?;
            }
            FileKind::File => self.chunks(ino, &frame.chunks, out)?,
            FileKind::Symlink => {
                let target = frame.symlink.unwrap_or_default();
                attr.length = target.len() as u64;
                out.emit(Stored::Symlink(ino, target.into()))?;
            }
            _ => {}
        }
        for xattr in frame.xattrs {
            let name = Name::unchecked(xattr.name.into_bytes());
            out.emit(Stored::Xattr(ino, name, unescape(&xattr.value).into()))?;
        }
        attr.access_acl = self.rule(frame.access_acl);
        attr.default_acl = self.rule(frame.default_acl);
        out.emit(Stored::Attr(ino, attr))
    }

    fn chunks(&mut self, ino: Ino, chunks: &[DumpedChunk], out: &mut Emitter) -> Result<()> {
        let mut last = None;
        for chunk in chunks {
            if last.is_some_and(|last| last >= chunk.index) {
                let what = format!("inode {ino}: chunk {} is out of order", chunk.index);
                return Err(crate::error::Error::bad_input(what));
            }
            last = Some(chunk.index);
            let slices: Vec<Slice> = chunk.slices.iter().map(Slice::from).collect();
            for slice in &slices {
                if u64::from(slice.pos) + u64::from(slice.len) > CHUNK_SIZE
                    || slice.id.0 >= i64::MAX as u64
                {
                    let what = format!("inode {ino}: slice {} is impossible", slice.id);
                    return Err(crate::error::Error::bad_input(what));
                }
                if slice.id.is_hole() {
                    continue;
                }
                let next = slice.id.0.cast_signed() + 1;
                self.totals.next_slice = self.totals.next_slice.max(next);
                if !self.totals.slices.insert(slice.id.0) {
                    let shared = SliceSize { id: slice.id, size: slice.size };
                    *self.totals.shared_slices.entry(shared).or_insert(1) += 1;
                }
            }
            if !slices.is_empty() {
                out.emit(Stored::Chunk(ino, chunk.index, slices))?;
            }
        }
        Ok(())
    }

    /// Counts a node, once.
    fn count(&mut self, ino: Ino, attr: &Attr) {
        let totals = &mut *self.totals;
        if ino.is_sub_trash() {
            totals.next_trash = totals.next_trash.max((ino.0 - Ino::TRASH.0).cast_signed());
        } else if !ino.is_trash() {
            totals.next_inode = totals.next_inode.max(ino.0.cast_signed() + 1);
        }
        if ino == self.top {
            return;
        }
        totals.used_space = totals.used_space.saturating_add(attr.space());
        totals.used_inodes += 1;
        // The hour directories of the trash are not charged to any owner.
        if !ino.is_trash() {
            for key in [QuotaKey::User(attr.uid), QuotaKey::Group(attr.gid)] {
                let (space, inodes) = totals.owners.entry(key).or_default();
                *space = space.saturating_add(attr.space());
                *inodes += 1;
            }
        }
    }

    /// Sets the usage of a directory's quota: the entries in it, at any depth. The trash is not
    /// charged.
    fn charge_quota(&mut self, dir: Ino, frame: &Frame, above: Option<&mut Frame>) {
        let space = frame.stat.space.saturating_add(frame.below.0);
        let inodes = frame.stat.inodes.saturating_add(frame.below.1);
        if let Some(above) = above {
            above.below.0 = above.below.0.saturating_add(space);
            above.below.1 = above.below.1.saturating_add(inodes);
        }
        if self.top == Ino::ROOT
            && let Some(quota) = self.quotas.get_mut(&QuotaKey::Dir(dir))
        {
            (quota.used_space, quota.used_inodes) = (space, inodes);
        }
    }

    fn rule(&mut self, acl: Option<DumpedAcl>) -> u32 {
        let Some(acl) = acl else { return 0 };
        let next = u32::try_from(self.totals.rules.len() + 1).unwrap_or(u32::MAX);
        *self.totals.rules.entry(acl.into()).or_insert(next)
    }
}
