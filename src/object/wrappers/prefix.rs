//! A part of a bucket: every key has the same prefix, which callers do not see.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::object::{GetRequest, Object, ObjectStore};

pub struct Prefixed {
    inner: Arc<dyn ObjectStore>,
    prefix: String,
    place: String,
}

impl Prefixed {
    pub fn new(inner: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        let place = format!("{}{prefix}", inner.place());
        Self { inner, prefix: prefix.to_owned(), place }
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn short(&self, object: Object) -> Result<Object> {
        let key = object.key.strip_prefix(&self.prefix).map(str::to_owned);
        let key = key.ok_or_else(|| Error::Storage {
            place: self.place.clone(),
            action: "list",
            key: object.key,
            cause: "the key does not begin with the prefix".to_owned(),
        })?;
        Ok(Object { key, ..object })
    }
}

#[async_trait]
impl ObjectStore for Prefixed {
    fn place(&self) -> &str {
        &self.place
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        self.inner.get(&self.full(key), request).await
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        self.inner.put(&self.full(key), body, tier).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(&self.full(key)).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        let found = self.inner.head(&self.full(key)).await?;
        Ok(Object { key: key.to_owned(), ..found })
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        let after = if after.is_empty() { String::new() } else { self.full(after) };
        let found = self.inner.list(&self.full(prefix), &after, limit).await?;
        found.into_iter().map(|object| self.short(object)).collect()
    }

    async fn create(&self) -> Result<()> {
        self.inner.create().await
    }

    fn has_cheap_ranges(&self) -> bool {
        self.inner.has_cheap_ranges()
    }

    fn verifies_whole(&self) -> bool {
        self.inner.verifies_whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::mem::MemStore;

    #[tokio::test]
    async fn keys_outside_the_prefix_are_neither_seen_nor_touched() {
        let bucket = Arc::new(MemStore::default());
        for key in ["vol", "vol-b/x", "vol/a", "vol/b", "vol0"] {
            bucket.put(key, Bytes::from_static(b"old"), 0).await.unwrap();
        }
        let volume = Prefixed::new(bucket.clone(), "vol/");
        let keys = |found: Vec<Object>| found.into_iter().map(|it| it.key).collect::<Vec<_>>();
        assert_eq!(keys(volume.list("", "", 10).await.unwrap()), ["a", "b"]);
        assert_eq!(keys(volume.list("", "a", 10).await.unwrap()), ["b"]);
        volume.put("c", Bytes::from_static(b"new"), 0).await.unwrap();
        volume.delete("a").await.unwrap();
        assert_eq!(
            keys(bucket.list("", "", 10).await.unwrap()),
            ["vol", "vol-b/x", "vol/b", "vol/c", "vol0"]
        );
        assert_eq!(volume.head("c").await.unwrap().key, "c");
        assert_eq!(volume.place(), "mem://vol/");
    }
}
