//! Checking blocks: whether their objects exist, have the right size, and can be read.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, bail};
use futures::{StreamExt, stream};

use crate::chunk::{BlockKey, Bucket, Compression, Options, Priority};
use crate::cli::progress::Tally;
use crate::cli::volume_scan::ScannedVolume;
use crate::error::Error;
use crate::meta::client::Progress;
use crate::object::Object;

/// Bad blocks that are described; a volume with more has lost its bucket.
const MAX_BAD: usize = 1_000_000;
/// What encryption adds to a body at most: the wrapped key of up to 8192 bits, nonce and tag.
const MAX_ENCRYPTION: u64 = 2048;

/// What is wrong with a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Missing,
    /// The object has this many bytes.
    Size(u64),
    /// The object cannot be decoded, for this reason.
    Damaged(String),
}

impl Fault {
    /// A word for it, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Size(_) => "size",
            Self::Damaged(_) => "damaged",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "does not exist"),
            Self::Size(bytes) => write!(f, "has the wrong size of {bytes} bytes"),
            Self::Damaged(why) => write!(f, "is damaged: {why}"),
        }
    }
}

/// Bad blocks by their keys.
pub type BadBlocks = BTreeMap<BlockKey, Fault>;

pub struct BlockCheck<'a> {
    pub volume: &'a ScannedVolume,
    pub cancel: &'a Progress,
    pub at_once: usize,
    pub found: &'a Tally,
    /// Whether blocks are only found by asking for each.
    counts_asked: bool,
    /// Reads blocks, for a deep check.
    deep: Option<Deep>,
}

struct Deep {
    bucket: Bucket,
    read: Tally,
}

impl<'a> BlockCheck<'a> {
    pub fn new(
        volume: &'a ScannedVolume,
        cancel: &'a Progress,
        at_once: usize,
        found: &'a Tally,
        counts_asked: bool,
        deep: Option<Tally>,
    ) -> anyhow::Result<Self> {
        let deep = match deep {
            None => None,
            Some(read) => {
                let options = Options { max_downloads: at_once, ..Options::default() };
                let objects = volume.impatient_objects()?;
                let bucket = Bucket::new(objects, volume.layout, volume.compression, &options);
                Some(Deep { bucket, read })
            }
        };
        Ok(Self { volume, cancel, at_once, found, counts_asked, deep })
    }

    pub fn is_deep(&self) -> bool {
        self.deep.is_some()
    }

    /// What is wrong with the size of an object, as the store reports it.
    pub fn size_fault(&self, block: BlockKey, object: &Object) -> Option<Fault> {
        let size = u64::from(block.size);
        let most = self.volume.compression.max_compressed_size(block.size);
        let is_plain = self.volume.compression == Compression::None;
        let allowed = match (is_plain, self.volume.setting.encrypt_key.is_empty()) {
            (true, true) => size..=size,
            (true, false) => size + 1..=size + MAX_ENCRYPTION,
            (false, true) => 1..=most,
            (false, false) => 1..=most + MAX_ENCRYPTION,
        };
        (!allowed.contains(&object.size)).then_some(Fault::Size(object.size))
    }

    /// Asks the store for each block, and reads it if the check is deep and `asks` or not. Adds the
    /// bad ones.
    pub async fn check(
        &self,
        blocks: impl Iterator<Item = BlockKey>,
        asks: bool,
        bad: &mut BadBlocks,
    ) -> anyhow::Result<()> {
        let checks = stream::iter(blocks).map(|block| async move {
            self.cancel.check()?;
            Ok::<_, anyhow::Error>((block, self.fault(block, asks).await?))
        });
        let mut checks = checks.buffer_unordered(self.at_once);
        while let Some(checked) = checks.next().await {
            let (block, fault) = checked?;
            if let Some(fault) = fault {
                add_bad(bad, block, fault)?;
            }
        }
        Ok(())
    }

    async fn fault(&self, block: BlockKey, asks: bool) -> anyhow::Result<Option<Fault>> {
        let key = self.volume.layout.key(block);
        if asks {
            match self.volume.objects.head(&key).await {
                Err(Error::NotFound) => return Ok(Some(Fault::Missing)),
                Err(error) => return Err(error).with_context(|| format!("cannot check {key}")),
                Ok(object) => {
                    if self.counts_asked {
                        self.found.add_data(1, object.size);
                    }
                    if let Some(fault) = self.size_fault(block, &object) {
                        return Ok(Some(fault));
                    }
                }
            }
        }
        let Some(deep) = &self.deep else { return Ok(None) };
        let permit = deep.bucket.download_permit(Priority::Demanded).await;
        let Err(error) = deep.bucket.fetch(permit, block).await else {
            deep.read.add_data(1, block.size.into());
            return Ok(None);
        };
        // Only a store that answers can say that an object is damaged.
        match self.volume.objects.head(&key).await {
            Err(Error::NotFound) => Ok(Some(Fault::Missing)),
            Err(error) => Err(error).with_context(|| format!("cannot check {key}")),
            Ok(_) => Ok(Some(Fault::Damaged(match error {
                Error::Storage { action, cause, .. } => format!("cannot {action} it: {cause}"),
                other => other.to_string(),
            }))),
        }
    }
}

/// Adds a bad block.
pub fn add_bad(bad: &mut BadBlocks, block: BlockKey, fault: Fault) -> anyhow::Result<()> {
    bad.insert(block, fault);
    if bad.len() > MAX_BAD {
        bail!("more than {MAX_BAD} objects are missing or damaged: is this the right bucket?");
    }
    Ok(())
}
