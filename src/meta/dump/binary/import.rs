//! Loading a binary dump: record by record, each checked before it is written.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use super::message::Footer;
use super::read::{Item, Reader};
use super::segment_name;
use crate::error::{Error, Result};
use crate::meta::dump::Progress;
use crate::meta::dump::id_set::IdSet;
use crate::meta::dump::load::{Emitter, Loader};
use crate::meta::engine::{DeletedFile, Key, Record, Stored};
use crate::meta::record::{
    AclRule, Attr, Counter, DirStat, Entry, FileKind, Quota, QuotaKey, Setting, SliceSize, chunk,
};
use crate::meta::{Ino, Name, Sid, SliceId};

/// Counters that are loaded. The others are times of jobs, which a new volume has not run yet.
const COUNTERS: [Counter; 6] = [
    Counter::UsedSpace,
    Counter::TotalInodes,
    Counter::NextInode,
    Counter::NextChunk,
    Counter::NextSession,
    Counter::NextTrash,
];

/// What is known when all records are.
#[derive(Default)]
struct Parsed {
    setting: Option<Setting>,
    has_root: bool,
    last_acl: u32,
    /// Directories that have a name.
    named_dirs: IdSet,
    /// Names of directories that have another one.
    second_names: Vec<(Ino, Ino)>,
    counts: HashMap<u32, u64>,
}

/// Loads a dump into a prepared store, and returns its setting. The caller removes everything if
/// this fails.
pub async fn import(
    loader: &Loader,
    input: Box<dyn Read + Send>,
    progress: Arc<Progress>,
) -> Result<Setting> {
    let parsed = loader.run(input, progress, parse).await?;
    let setting = parsed.setting.ok_or_else(|| missing("the setting"))?;
    if !parsed.has_root {
        return Err(missing("the root directory"));
    }
    check_second_names(loader, &parsed.second_names).await?;
    if parsed.last_acl > 0 {
        let last = Stored::Counter(Counter::AclMaxId, parsed.last_acl.into());
        loader.write(vec![last]).await?;
    }
    loader.engine.finish_load(&setting.encode()?).await?;
    Ok(setting)
}

fn parse(input: Box<dyn Read + Send>, emitter: &mut Emitter) -> Result<Parsed> {
    let mut reader = Reader::new(std::io::BufReader::with_capacity(256 << 10, input));
    let mut parsed = Parsed::default();
    let footer = reader.each(|kind, item| {
        *parsed.counts.entry(kind).or_default() += 1;
        emitter.progress().add(1);
        for record in parsed.records(item)? {
            emitter.emit(record)?;
        }
        Ok(())
    })?;
    check_counts(&footer, &parsed.counts)?;
    Ok(parsed)
}

impl Parsed {
    /// Checks a record and returns what to write of it.
    fn records(&mut self, item: Item) -> Result<Vec<Stored>> {
        Ok(vec![match item {
            Item::Format(raw) => {
                let setting = Setting::decode(&raw)?;
                setting.check_stored()?;
                self.setting = Some(setting);
                return Ok(Vec::new());
            }
            Item::Counter(counter) => {
                let known = COUNTERS.into_iter().find(|known| known.name() == counter.key);
                let Some(known) = known else { return Ok(Vec::new()) };
                let is_id = !matches!(known, Counter::UsedSpace | Counter::TotalInodes);
                if is_id && !(0..1 << 62).contains(&counter.value) {
                    let what =
                        format!("counter {} is out of range: {}", counter.key, counter.value);
                    return Err(Error::bad_input(what));
                }
                Stored::Counter(known, counter.value)
            }
            Item::Node(node) => {
                let ino = inode(node.inode)?;
                self.has_root |= ino == Ino::ROOT;
                Stored::Attr(ino, Attr::decode(&node.data)?)
            }
            Item::Edge(edge) => self.edge(edge)?,
            Item::Chunk(chunk) => {
                Stored::Chunk(inode(chunk.inode)?, chunk.index, chunk::decode(&chunk.slices)?)
            }
            Item::SliceRef(slice) => {
                let size = SliceSize { id: SliceId(slice.id), size: slice.size };
                Stored::SliceRef(size, slice.refs)
            }
            Item::Symlink(symlink) => Stored::Symlink(inode(symlink.inode)?, symlink.target.into()),
            Item::Sustained(session) => {
                let sid = Sid(session.sid);
                let files = session.inodes.into_iter();
                return files.map(|ino| Ok(Stored::Sustained(sid, inode(ino)?))).collect();
            }
            Item::DelFile(file) => Stored::DeletedFile(DeletedFile {
                ino: inode(file.inode)?,
                length: file.length,
                at: file.expire,
            }),
            Item::Xattr(xattr) => {
                let name = Name::unchecked(xattr.name.into_bytes());
                Stored::Xattr(inode(xattr.inode)?, name, xattr.value.into())
            }
            Item::Acl(acl) => {
                self.last_acl = self.last_acl.max(acl.id);
                Stored::Acl(acl.id, AclRule::decode(&acl.data)?)
            }
            Item::Stat(stat) => Stored::DirStat(
                inode(stat.inode)?,
                DirStat {
                    length: stat.data_length,
                    space: stat.used_space,
                    inodes: stat.used_inodes,
                },
            ),
            Item::Quota(quota) => {
                let owner = || {
                    u32::try_from(quota.key).map_err(|_| {
                        Error::bad_input(format!("{} is not a user or group", quota.key))
                    })
                };
                let key = match quota.kind {
                    0 => QuotaKey::Dir(inode(quota.key)?),
                    1 => QuotaKey::User(owner()?),
                    2 => QuotaKey::Group(owner()?),
                    // A later version may have added kinds that this client does not know.
                    _ => return Ok(Vec::new()),
                };
                Stored::Quota(
                    key,
                    Quota {
                        max_space: quota.max_space,
                        max_inodes: quota.max_inodes,
                        used_space: quota.used_space,
                        used_inodes: quota.used_inodes,
                    },
                )
            }
            Item::Parent(parent) => Stored::Parent {
                ino: inode(parent.inode)?,
                parent: inode(parent.dir)?,
                count: parent.count,
            },
        }])
    }

    /// Checks an entry. The tree has no loops if the root has no name and no other directory has
    /// two.
    fn edge(&mut self, edge: super::message::Edge) -> Result<Stored> {
        let (parent, ino) = (inode(edge.parent)?, inode(edge.inode)?);
        let shown = String::from_utf8_lossy(&edge.name).into_owned();
        let refused =
            |what: &str| Error::bad_input(format!("entry {shown:?} of inode {parent}: {what}"));
        let name =
            Name::from_bytes(edge.name.into()).map_err(|error| refused(&error.to_string()))?;
        let kind = u8::try_from(edge.kind).ok().and_then(FileKind::from_u8);
        let kind = kind.ok_or_else(|| refused("unknown type"))?;
        if ino == Ino::ROOT || ino == Ino::TRASH {
            return Err(refused(&format!("inode {ino} cannot have a name")));
        }
        if kind == FileKind::Dir && !self.named_dirs.insert(ino.0) {
            self.second_names.push((ino, parent));
        }
        Ok(Stored::Entry(parent, name, Entry { kind, ino }))
    }
}

/// Fails if a directory is in two others. A dump of a store that changed meanwhile may hold the same
/// entry twice.
async fn check_second_names(loader: &Loader, names: &[(Ino, Ino)]) -> Result<()> {
    for (ino, parent) in names {
        let attr = loader.engine.read(&[Key::Attr(*ino)]).await?.pop();
        if !matches!(&attr, Some(Record::Attr(Some(attr))) if attr.parent == *parent) {
            return Err(Error::bad_input(format!("directory {ino} comes twice")));
        }
    }
    Ok(())
}

/// Fails if the footer counts other records than there are.
fn check_counts(footer: &Footer, counts: &HashMap<u32, u64>) -> Result<()> {
    for (kind, count) in counts {
        let name = segment_name(*kind);
        let said = footer.infos.get(&name).map_or(0, |info| info.num);
        if said != *count && name != "changeLog" {
            return Err(Error::bad_input(format!(
                "the dump holds {count} records of type {name}, its footer says {said}"
            )));
        }
    }
    Ok(())
}

fn inode(number: u64) -> Result<Ino> {
    if number == 0 || number > i64::MAX as u64 {
        return Err(Error::bad_input(format!("{number} is not an inode")));
    }
    Ok(Ino(number))
}

fn missing(what: &str) -> Error {
    Error::bad_input(format!("not a dump of a volume: {what} is missing"))
}
