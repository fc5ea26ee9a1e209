//! Objects distributed over several buckets by their keys, as JuiceFS does: the bucket of an object
//! is part of the format.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::try_join_all;

use crate::error::{Error, Result};
use crate::object::{GetRequest, Object, ObjectStore};

/// The maximum that JuiceFS allows.
const MAX_SHARDS: u32 = 256;

pub struct Sharded {
    buckets: Vec<Arc<dyn ObjectStore>>,
    place: String,
}

impl Sharded {
    /// Takes at least one bucket, in order of their numbers.
    pub fn new(buckets: Vec<Arc<dyn ObjectStore>>) -> Result<Self> {
        let first = buckets.first().ok_or_else(|| Error::bad_input("there are no buckets"))?;
        let place = format!("shard{}://{}", buckets.len(), first.place());
        Ok(Self { buckets, place })
    }

    fn bucket(&self, key: &str) -> &dyn ObjectStore {
        // Never out of range: the remainder is less than the length, which is at most 256.
        let shard = fnv1a(key.as_bytes()) as usize % self.buckets.len();
        self.buckets[shard].as_ref()
    }
}

#[async_trait]
impl ObjectStore for Sharded {
    fn place(&self) -> &str {
        &self.place
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        self.bucket(key).get(key, request).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.bucket(key).put(key, body, tier).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.bucket(key).delete(key).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.bucket(key).head(key).await
    }

    /// The first `limit` objects of all buckets are among the first `limit` of each.
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        let lists = self.buckets.iter().map(|bucket| bucket.list(prefix, after, limit));
        let mut found: Vec<Object> = try_join_all(lists).await?.into_iter().flatten().collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found.truncate(limit);
        Ok(found)
    }

    async fn create(&self) -> Result<()> {
        try_join_all(self.buckets.iter().map(|bucket| bucket.create())).await.map(drop)
    }

    fn has_cheap_ranges(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.has_cheap_ranges())
    }

    fn verifies_whole(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.verifies_whole())
    }
}

/// Returns the addresses of the buckets of a pattern, in which `%d`, or for example `%03d`, is the
/// number.
pub fn addresses(pattern: &str, shards: u32) -> Result<Vec<String>> {
    if shards > MAX_SHARDS {
        return Err(Error::BadInput(format!("{shards} shards: at most {MAX_SHARDS} are possible")));
    }
    let bad =
        || Error::BadInput(format!("bucket {pattern:?} must have one %d for {shards} shards"));
    let (before, rest) = pattern.split_once('%').ok_or_else(bad)?;
    let (width, after) = rest.split_once('d').ok_or_else(bad)?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(width) || width.len() > 2 || after.contains('%') {
        return Err(bad());
    }
    let zeros = width.starts_with('0');
    let width: usize = if width.is_empty() { 0 } else { width.parse().map_err(|_| bad())? };
    if width > 0 && !zeros {
        return Err(bad());
    }
    Ok((0..shards).map(|shard| format!("{before}{shard:0width$}{after}")).collect())
}

fn fnv1a(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::mem::MemStore;

    #[test]
    fn the_hash_is_fnv_1a() {
        // Published test vectors.
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn a_pattern_expands_to_one_address_per_shard() {
        assert_eq!(addresses("/b%d/", 3).unwrap(), ["/b0/", "/b1/", "/b2/"]);
        assert_eq!(addresses("http://h/b-%02d?x=1", 2).unwrap()[1], "http://h/b-01?x=1");
        for wrong in ["/b/", "/b%s/", "/b%d%d/", "/b%", "/b%3d/"] {
            let error = addresses(wrong, 2).unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
        }
        assert!(addresses("/b%d/", 257).unwrap_err().to_string().contains("257"));
    }

    #[tokio::test]
    async fn listings_are_merged_in_order() {
        let buckets: Vec<Arc<MemStore>> = (0..3).map(|_| Arc::default()).collect();
        let each = buckets.iter().map(|bucket| bucket.clone() as Arc<dyn ObjectStore>);
        let store = Sharded::new(each.collect()).unwrap();
        let keys: Vec<String> = (0..100).map(|i| format!("k{i:03}")).collect();
        for key in &keys {
            store.put(key, Bytes::from_static(b"x"), 0).await.unwrap();
        }
        for bucket in &buckets {
            assert!(!bucket.list("", "", 1000).await.unwrap().is_empty());
        }
        let mut listed: Vec<String> = Vec::new();
        loop {
            let after = listed.last().cloned().unwrap_or_default();
            let page = store.list("k", &after, 7).await.unwrap();
            listed.extend(page.iter().map(|object| object.key.clone()));
            if page.len() < 7 {
                break;
            }
        }
        assert_eq!(listed, keys);
    }
}
