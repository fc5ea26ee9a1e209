//! Loading a JSON dump: records are written while the text is read, and what depends on the whole
//! (hard links, shared slices, counters, quotas) at the end.
//!
//! Link counts, usage and references are counted anew, as the Go client does it.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use super::model::{DumpedCounters, DumpedDeletedFile, DumpedQuotas};
use super::scanner::Scanner;
use super::tree::{Totals, TreeParser};
use crate::error::{Error, Result};
use crate::meta::Ino;
use crate::meta::dump::Progress;
use crate::meta::dump::load::{Emitter, Loader};
use crate::meta::engine::{DeletedFile, Key, Record, Stored};
use crate::meta::record::{Attr, Counter, Quota, QuotaKey, Setting};

/// Hard-linked nodes that are completed together.
const LINKS_AT_ONCE: usize = 500;
/// Ids from here on are not plausible: a counter that starts there would soon overflow.
const MAX_ID: i64 = 1 << 62;

/// Everything in a dump besides its trees.
#[derive(Debug, Default)]
struct Parsed {
    setting: Option<Setting>,
    counters: Option<DumpedCounters>,
    deleted: Vec<DumpedDeletedFile>,
    /// Quotas with the usage that the tree adds up to.
    quotas: HashMap<QuotaKey, Quota>,
    totals: Totals,
}

/// Loads a dump into a prepared store, and returns its setting. The caller removes everything if
/// this fails.
pub async fn import(
    loader: &Loader,
    input: Box<dyn Read + Send>,
    progress: Arc<Progress>,
) -> Result<Setting> {
    let mut parsed = loader.run(input, progress, parse).await?;
    let setting = parsed.setting.take().ok_or_else(|| missing("Setting"))?;
    let counters = parsed.counters.take().ok_or_else(|| missing("Counters"))?;
    complete_links(loader, &parsed.totals).await?;
    loader.write(rest(&setting, &counters, &parsed)).await?;
    loader.engine.finish_load(&setting.encode()?).await?;
    Ok(setting)
}

fn parse(input: Box<dyn Read + Send>, emitter: &mut Emitter) -> Result<Parsed> {
    let mut scanner = Scanner::new(input);
    let mut parsed = Parsed::default();
    let (mut has_tree, mut has_trash) = (false, false);
    scanner.begin_object()?;
    let mut is_first = true;
    while let Some(key) = scanner.next_key(&mut is_first)? {
        match key.as_str() {
            "Setting" => {
                let setting = Setting::decode(&scanner.raw_value()?)?;
                setting.check_stored()?;
                parsed.setting = Some(setting);
            }
            "Counters" => {
                let counters: DumpedCounters = scanner.value()?;
                check_counters(&counters).map_err(|what| scanner.error(what))?;
                parsed.counters = Some(counters);
            }
            "DelFiles" => {
                let files: Option<Vec<DumpedDeletedFile>> = scanner.value()?;
                parsed.deleted = files.unwrap_or_default();
                if parsed.deleted.iter().any(|file| file.inode < 2 || file.length > i64::MAX as u64)
                {
                    return Err(
                        scanner.error("a file of DelFiles has an impossible inode or length")
                    );
                }
            }
            "Quotas" | "UserQuotas" | "GroupQuotas" => {
                if has_tree {
                    return Err(scanner.error(format!("{key} must come before FSTree")));
                }
                let quotas: Option<DumpedQuotas> = scanner.value()?;
                for (id, quota) in quotas.unwrap_or_default() {
                    let Some(of) = quota_key(&key, &id) else {
                        return Err(scanner.error(format!("{id:?} in {key} is not an id")));
                    };
                    let limits = Quota {
                        max_space: quota.max_space,
                        max_inodes: quota.max_inodes,
                        ..Quota::default()
                    };
                    parsed.quotas.insert(of, limits);
                }
            }
            "FSTree" | "Trash" => {
                let seen = if key == "Trash" { &mut has_trash } else { &mut has_tree };
                if std::mem::replace(seen, true) {
                    return Err(scanner.error(format!("a second {key}")));
                }
                let top = if key == "Trash" { Ino::TRASH } else { Ino::ROOT };
                let mut tree = TreeParser::new(&mut parsed.totals, &mut parsed.quotas, top);
                tree.parse(&mut scanner, emitter)?;
            }
            // Nobody loads Sustained and ChangeLog; a later version may have added more.
            _ => scanner.skip_value()?,
        }
    }
    scanner.end()?;
    if !has_tree {
        return Err(missing("FSTree"));
    }
    Ok(parsed)
}

/// Writes what hard-linked nodes have instead of a parent, and their number of links.
async fn complete_links(loader: &Loader, totals: &Totals) -> Result<()> {
    let links: Vec<_> = totals.links.iter().collect();
    for some in links.chunks(LINKS_AT_ONCE) {
        let keys: Vec<Key> = some.iter().map(|(ino, _)| Key::Attr(**ino)).collect();
        let mut records = Vec::new();
        for ((ino, link), attr) in some.iter().zip(loader.engine.read(&keys).await?) {
            let Record::Attr(Some(attr)) = attr else {
                return Err(Error::internal("loading", format!("inode {ino} was not written")));
            };
            if attr.kind != link.kind {
                return Err(Error::bad_input(format!(
                    "inode {ino} is {:?} in one place of the dump and {:?} in another",
                    attr.kind, link.kind
                )));
            }
            let mut counts: HashMap<Ino, i64> = HashMap::from([(attr.parent, 1)]);
            for parent in &link.parents {
                *counts.entry(*parent).or_default() += 1;
            }
            let nlink = u32::try_from(link.parents.len() + 1).unwrap_or(u32::MAX);
            records.push(Stored::Attr(**ino, Attr { nlink, parent: Ino::NONE, ..attr }));
            records.extend(counts.into_iter().map(|(parent, count)| Stored::Parent {
                ino: **ino,
                parent,
                count,
            }));
        }
        loader.write(records).await?;
    }
    Ok(())
}

/// Returns the records that are known when the trees are.
fn rest(setting: &Setting, dumped: &DumpedCounters, parsed: &Parsed) -> Vec<Stored> {
    let totals = &parsed.totals;
    let mut records = Vec::new();
    // The dumped counters may be ahead of the tree. An id must not be used again: objects of
    // removed files may still have it.
    for (counter, value) in [
        (Counter::UsedSpace, totals.used_space),
        (Counter::TotalInodes, totals.used_inodes),
        (Counter::NextInode, dumped.next_inode.max(totals.next_inode).max(2)),
        (Counter::NextChunk, dumped.next_chunk.max(totals.next_slice).max(1)),
        (Counter::NextSession, dumped.next_session),
        (Counter::NextTrash, dumped.next_trash.max(totals.next_trash)),
    ] {
        records.push(Stored::Counter(counter, value));
    }
    let mut last_acl = 0;
    for (rule, id) in &totals.rules {
        last_acl = last_acl.max(*id);
        records.push(Stored::Acl(*id, rule.clone()));
    }
    if last_acl > 0 {
        records.push(Stored::Counter(Counter::AclMaxId, last_acl.into()));
    }
    records
        .extend(totals.shared_slices.iter().map(|(slice, refs)| Stored::SliceRef(*slice, *refs)));
    records.extend(parsed.deleted.iter().map(|file| {
        Stored::DeletedFile(DeletedFile {
            ino: Ino(file.inode),
            length: file.length,
            at: file.expire,
        })
    }));
    records.extend(quotas(setting, parsed));
    records
}

/// Returns all quotas with their usage. If owners are counted at all, each of them is.
fn quotas(setting: &Setting, parsed: &Parsed) -> Vec<Stored> {
    let mut quotas = parsed.quotas.clone();
    let is_owner = |key: &QuotaKey| !matches!(key, QuotaKey::Dir(_));
    if setting.user_group_quota || quotas.keys().any(is_owner) {
        for (key, (space, inodes)) in &parsed.totals.owners {
            let quota = quotas.entry(*key).or_insert(Quota::UNLIMITED);
            (quota.used_space, quota.used_inodes) = (*space, *inodes);
        }
    }
    quotas.into_iter().map(|(key, quota)| Stored::Quota(key, quota)).collect()
}

fn quota_key(field: &str, id: &str) -> Option<QuotaKey> {
    Some(match field {
        "Quotas" => QuotaKey::Dir(Ino(id.parse().ok()?)),
        "UserQuotas" => QuotaKey::User(id.parse().ok()?),
        _ => QuotaKey::Group(id.parse().ok()?),
    })
}

fn check_counters(counters: &DumpedCounters) -> Result<(), String> {
    let ids = [
        ("nextInodes", counters.next_inode),
        ("nextChunk", counters.next_chunk),
        ("nextSession", counters.next_session),
        ("nextTrash", counters.next_trash),
    ];
    match ids.into_iter().find(|(_, value)| !(0..MAX_ID).contains(value)) {
        Some((name, value)) => Err(format!("counter {name} is out of range: {value}")),
        None => Ok(()),
    }
}

fn missing(what: &str) -> Error {
    Error::bad_input(format!("not a dump of a volume: {what} is missing"))
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
