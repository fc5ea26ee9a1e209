//! Putting a store together from its parts.

use std::sync::Arc;

use super::deadline::Deadline;
use super::file::FileStore;
use super::limits::{Limited, Rate};
use super::mem::MemStore;
use super::metrics::Measured;
use super::prefix::Prefixed;
use super::retry::Retry;
use super::s3::{S3Store, Service};
use super::shards::{self, Sharded};
use super::tier::Tiers;
use super::{ObjectStore, Spec};
use crate::error::{Error, Result};

/// The kinds of stores that there are.
pub const STORAGES: [&str; 10] =
    ["file", "mem", "s3", "minio", "oss", "eos", "oos", "scw", "space", "wasabi"];

/// Opens a store. Nothing is asked of it yet, so a bucket that is not there or keys that are wrong
/// show with the first request.
///
/// From the outside in: retries, bandwidth, deadlines, counters, encryption, prefix, shards. So a
/// shard is chosen by the key with its prefix, as in JuiceFS, and each try counts and pays for
/// itself.
pub fn open(spec: &Spec) -> Result<Arc<dyn ObjectStore>> {
    let mut store = buckets(spec)?;
    if !spec.prefix.is_empty() {
        store = Arc::new(Prefixed::new(store, &spec.prefix));
    }
    if spec.encryption.is_some() {
        return Err(Error::Refused("encrypted volumes cannot be opened yet".to_owned()));
    }
    if let Some(metrics) = &spec.metrics {
        store = Arc::new(Measured::new(store, metrics.clone(), Tiers::new(&spec.tiers)?));
    }
    store = Arc::new(Deadline::new(store, spec.get_timeout, spec.put_timeout));
    if spec.upload_limit > 0 || spec.download_limit > 0 {
        let (upload, download) = (Rate::new(spec.upload_limit), Rate::new(spec.download_limit));
        store = Arc::new(Limited::new(store, upload, download));
    }
    Ok(Arc::new(Retry::new(store, spec.retries)))
}

fn buckets(spec: &Spec) -> Result<Arc<dyn ObjectStore>> {
    if spec.shards < 2 {
        return bucket(spec);
    }
    let addresses = shards::addresses(&spec.bucket, spec.shards)?;
    let each = addresses.into_iter().map(|bucket_of| {
        let bucket_spec = Spec { bucket: bucket_of, ..spec.clone() };
        bucket(&bucket_spec)
    });
    Ok(Arc::new(Sharded::new(each.collect::<Result<_>>()?)?))
}

fn bucket(spec: &Spec) -> Result<Arc<dyn ObjectStore>> {
    match spec.storage.to_lowercase().as_str() {
        "file" => Ok(Arc::new(FileStore::new(&spec.bucket, spec.sync)?)),
        "mem" => Ok(MemStore::named(&spec.bucket)),
        other => match Service::of(other) {
            Some(service) => Ok(Arc::new(S3Store::new(service, spec)?)),
            None => Err(Error::BadInput(format!(
                "storage {:?} is not supported; there are: {}",
                spec.storage,
                STORAGES.join(", ")
            ))),
        },
    }
}
