//! Opens a store: builds the backend and its wrappers from a [`Spec`].

use std::path::Path;
use std::sync::Arc;

use super::file::FileStore;
use super::mem::MemStore;
use super::s3::{S3Store, Service};
use super::tier::Tiers;
use super::wrappers::bandwidth::BandwidthLimited;
use super::wrappers::encrypt::Encrypted;
use super::wrappers::metrics::Measured;
use super::wrappers::prefix::Prefixed;
use super::wrappers::retry::Retry;
use super::wrappers::shards::{self, Sharded};
use super::wrappers::timeout::TimeoutStore;
use super::{ObjectStore, Spec};
use crate::error::{Error, Result};
use crate::rate_limit::RateLimit;

/// The supported kinds of stores.
pub const STORAGES: [&str; 12] =
    ["file", "mem", "s3", "minio", "oss", "cos", "eos", "obs", "oos", "scw", "space", "wasabi"];

/// Opens a store. Sends no request yet, so a missing bucket or wrong keys show with the first
/// request.
///
/// From the outside in: retries, bandwidth, timeouts, metrics, encryption, prefix, shards. So a
/// shard is chosen by the key with its prefix, as in JuiceFS, and each attempt is counted and
/// limited on its own.
pub fn open(spec: &Spec) -> Result<Arc<dyn ObjectStore>> {
    let mut store = buckets(spec)?;
    if !spec.prefix.is_empty() {
        store = Arc::new(Prefixed::new(store, &spec.prefix));
    }
    if let Some(encryption) = &spec.encryption {
        store = Arc::new(Encrypted::new(store, encryption)?);
    }
    if let Some(metrics) = &spec.metrics {
        store = Arc::new(Measured::new(store, metrics.clone(), Tiers::new(&spec.tiers)?));
    }
    store = Arc::new(TimeoutStore::new(store, spec.get_timeout, spec.put_timeout));
    if spec.upload_limit > 0 || spec.download_limit > 0 {
        let (upload, download) =
            (RateLimit::new(spec.upload_limit), RateLimit::new(spec.download_limit));
        store = Arc::new(BandwidthLimited::new(store, upload, download));
    }
    let health = spec.metrics.as_ref().map(|metrics| Arc::clone(metrics.health()));
    Ok(Arc::new(Retry::new(store, spec.retries).reporting_to(health)))
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
    spec.policy.check_storage(&spec.storage, &spec.bucket)?;
    match spec.storage.to_lowercase().as_str() {
        "file" => {
            // The name of the volume is part of the path.
            let place = format!("{}{}", spec.bucket, spec.prefix);
            spec.policy.check_local("bucket", Path::new(&place))?;
            Ok(Arc::new(FileStore::new(&spec.bucket, spec.sync)?))
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Flags, Policy};
    use crate::secret::Secret;

    #[test]
    fn the_error_for_an_unknown_storage_lists_the_supported_ones() {
        let error = open(&Spec::new("tape", "/")).err().map(|error| error.to_string());
        let expected = "storage \"tape\" is not supported; there are: file, mem, s3, minio, oss, \
                        cos, eos, obs, oos, scw, space, wasabi";
        assert_eq!(error.as_deref(), Some(expected));
    }

    #[test]
    fn every_supported_storage_opens() {
        for storage in STORAGES {
            let bucket = if storage == "file" { "/tmp" } else { "https://vol.a.b.c/vol" };
            open(&Spec::new(storage, bucket)).unwrap();
        }
    }

    #[tokio::test]
    async fn a_shard_is_chosen_by_the_key_with_its_prefix() {
        let spec = Spec { prefix: "vol/".to_owned(), shards: 3, ..Spec::new("mem", "shard-%d") };
        let store = open(&spec).unwrap();
        store.put("chunks/0/0/1_0_4194304", bytes::Bytes::new(), 0).await.unwrap();
        // FNV-1a of "vol/chunks/0/0/1_0_4194304" is 3896983470.
        let shard = MemStore::named("shard-0");
        assert_eq!(shard.list("", "", 9).await.unwrap()[0].key, "vol/chunks/0/0/1_0_4194304");
    }

    fn restricted(storage: &str, bucket: &str) -> Spec {
        let policy = Policy::new(Flags::default()).unwrap();
        Spec { policy, retries: 0, ..Spec::new(storage, bucket) }
    }

    #[test]
    fn a_store_that_the_policy_forbids_is_not_opened() {
        for (storage, bucket, word) in [
            ("file", "/tmp/", "--allow-local-storage"),
            ("mem", "vol", "mem"),
            ("s3", "http://169.254.169.254/vol", "--allow-link-local"),
            ("minio", "http://127.0.0.1:9000/vol", "--allow-loopback"),
            ("s3", "https://10.0.0.1/vol?ca-certs=/etc/passwd", "--allow-files-below"),
        ] {
            let error = open(&restricted(storage, bucket)).err().unwrap();
            assert!(matches!(&error, Error::Forbidden(why) if why.contains(word)), "{error}");
        }
        let policy =
            Policy::new(Flags { allow_local_storage: Some("/tmp".into()), ..Flags::default() });
        let spec = restricted("file", "/tmp/objects/");
        let mut spec = Spec { policy: policy.unwrap(), ..spec };
        open(&spec).unwrap();
        spec.prefix = "../../etc/".to_owned();
        assert!(open(&spec).is_err(), "the volume name is part of the path");
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_the_node_is_not_connected_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["localhost", "127.1", "0x7f000001"] {
            let spec = restricted("s3", "http://10.0.0.1/vol");
            let env = [("HTTP_PROXY".to_owned(), Secret::new(format!("http://{host}:{port}")))];
            let proxied = Spec { env: env.into(), ..spec };
            let direct = restricted("s3", &format!("http://{host}:{port}/vol"));
            for spec in [direct, proxied] {
                let opened = match open(&spec) {
                    Ok(store) => store.head("x").await.map(drop),
                    Err(error) => Err(error),
                };
                let error = opened.unwrap_err().to_string();
                assert!(error.contains("--allow-loopback"), "{host}: {error}");
            }
        }
        assert!(listener.accept().is_err(), "a connection was made");
    }
}
