//! What a keeper holds for a mount: its device, its record and its ledger, and where the kernel
//! cannot send requests again, those that were received.
//!
//! The record is JSON in a sealed memfd, replaced as a whole. It may have secrets, which so stay in
//! memory; the keeper never reads it. Fields that a version does not know are kept for the next.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Mounted;
use crate::error::{Error, Result};
use crate::fuse::{Negotiated, ServedDevice};
use crate::keeper::KeeperClient;
use crate::ledger::Ledger;
use crate::meta::{Ino, Sid};

/// The format of the record. A version that cannot read it declines, and the one before serves on.
const FORMAT: u32 = 1;
/// Larger than any record.
const MAX_RECORD: u64 = 16 << 20;
/// How long the ledger of a process that is ending may stay locked.
const FENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the next process must know of a mount to continue with it.
#[derive(Clone, Serialize, Deserialize)]
pub struct SessionRecord {
    format: u32,
    pub point: PathBuf,
    /// The mounted directory: its path may lead elsewhere by now.
    root: u64,
    sid: u64,
    pub agreed: Negotiated,
    /// How the mount was requested, as the requester encoded it. May have secrets.
    #[serde(default)]
    pub request: Value,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

impl SessionRecord {
    pub fn root(&self) -> Ino {
        Ino(self.root)
    }

    pub fn sid(&self) -> Sid {
        Sid(self.sid)
    }
}

/// Shows no request: there may be secrets in it.
impl std::fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { point, root, sid, .. } = self;
        f.debug_struct("SessionRecord")
            .field("point", point)
            .field("root", root)
            .field("sid", sid)
            .finish_non_exhaustive()
    }
}

/// A mount that another process served.
#[derive(Debug)]
pub struct KeptSession {
    pub record: SessionRecord,
    pub device: ServedDevice,
    ledger: OwnedFd,
}

impl KeptSession {
    /// Returns what the keeper holds under a name.
    pub fn get(keeper: &KeeperClient, name: &str) -> Result<Option<Self>> {
        let Some(held) = keeper.get(name)? else { return Ok(None) };
        let found = held.len();
        let mut held = held.into_iter();
        let (Some(device), Some(record), Some(ledger), received, None) =
            (held.next(), held.next(), held.next(), held.next(), held.next())
        else {
            return Err(Error::damaged(
                name,
                format!("the keeper holds {found} descriptors, not 3 or 4"),
            ));
        };
        let record = read(name, record)?;
        if received.is_none() && !record.agreed.can_resend() {
            let text = "the keeper does not hold the requests that were received";
            return Err(Error::damaged(name, text));
        }
        Ok(Some(Self { record, device: ServedDevice { device, received }, ledger }))
    }

    /// Takes the ledger over. Waits for the end of the process that has it.
    pub fn take_ledger(&self) -> Result<std::sync::Arc<Ledger>> {
        let ledger = self.ledger.try_clone().map_err(|error| fault(&error))?;
        Ledger::adopt(ledger, FENCE_TIMEOUT)
    }
}

impl Mounted {
    /// Lets the keeper hold this mount under a name, so that another process can continue with it.
    /// Returns false if the mount cannot be adopted.
    pub fn keep(&self, keeper: &KeeperClient, name: &str, request: Value) -> Result<bool> {
        let Some(ledger) = self.ledger().filter(|_| self.can_be_adopted()) else {
            return Ok(false);
        };
        let record = SessionRecord {
            format: FORMAT,
            point: self.point().to_owned(),
            root: self.root().0,
            sid: self.volume().meta().context().sid().0,
            agreed: self.session().agreed().clone(),
            request,
            unknown: Map::new(),
        };
        let record = write(&record)?;
        let mut held = vec![self.session().device(), record.as_fd(), ledger.as_fd()];
        held.extend(self.session().received());
        keeper.put(name, &held)?;
        Ok(true)
    }
}

fn read(name: &str, record: OwnedFd) -> Result<SessionRecord> {
    let mut text = Vec::new();
    let mut file = File::from(record);
    let read = file.rewind().and_then(|()| file.take(MAX_RECORD).read_to_end(&mut text));
    read.map_err(|error| fault(&error))?;
    let value: Value = serde_json::from_slice(&text).map_err(|_| damaged(name))?;
    let format = value.get("format").and_then(Value::as_u64);
    if format != Some(u64::from(FORMAT)) {
        return Err(Error::Refused(format!(
            "mount {name}: its record has format {}, and this program reads {FORMAT}",
            format.unwrap_or_default()
        )));
    }
    serde_json::from_value(value).map_err(|_| damaged(name))
}

/// The parser's error would show the text.
fn damaged(name: &str) -> Error {
    Error::damaged(format!("of mount {name}"), "it is not as this program writes it")
}

fn write(record: &SessionRecord) -> Result<OwnedFd> {
    let text = serde_json::to_vec(record).map_err(Error::bad_input)?;
    let made = || -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("jfs-record", flags)?);
        file.write_all(&text)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        Ok(file.into())
    };
    made().map_err(|error| fault(&error))
}

fn fault(error: &io::Error) -> Error {
    Error::Unreachable { place: "the record of the mount".to_owned(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> Value {
        let agreed = json!({"minor": 40, "flags": 1, "max_write": 4096, "max_readahead": 4096,
            "max_background": 50});
        json!({"format": FORMAT, "point": "/mnt", "root": 5, "sid": 7, "agreed": agreed,
            "request": {"secret": "sesame"}})
    }

    fn stored(value: &Value) -> OwnedFd {
        let mut file = File::from(memfd_create("test", MemfdFlags::empty()).unwrap());
        file.write_all(&serde_json::to_vec(value).unwrap()).unwrap();
        file.into()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let known: SessionRecord = serde_json::from_value(record()).unwrap();
        let again = read("m", write(&known).unwrap()).unwrap();
        assert_eq!((again.root(), again.sid()), (Ino(5), Sid(7)));
        assert_eq!(again.request["secret"], "sesame");
    }

    #[test]
    fn fields_of_a_newer_version_are_kept() {
        let mut newer = record();
        newer["lease"] = json!(3);
        let known = read("m", stored(&newer)).unwrap();
        assert_eq!(serde_json::to_value(&known).unwrap()["lease"], 3);
    }

    #[test]
    fn an_unknown_format_is_refused_and_nothing_of_it_is_shown() {
        let mut newer = record();
        newer["format"] = json!(FORMAT + 1);
        let error = read("m", stored(&newer)).unwrap_err().to_string();
        assert!(error.contains(&format!("format {}", FORMAT + 1)), "{error}");
        let mut damaged = record();
        damaged["sid"] = json!("sesame");
        let error = read("m", stored(&damaged)).unwrap_err().to_string();
        assert!(!error.contains("sesame"), "{error}");
        let known: SessionRecord = serde_json::from_value(record()).unwrap();
        assert!(!format!("{known:?}").contains("sesame"));
    }
}
