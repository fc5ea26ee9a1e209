//! Listing all objects of a volume, several ranges of keys at once.

use futures::{Stream, StreamExt, stream};

use super::ScannedVolume;
use crate::error::Result;
use crate::object::{Object, ObjectStore};

/// What the keys of all blocks begin with.
pub const CHUNKS: &str = "chunks/";
/// Objects of one page of a listing.
const PAGE: usize = 2000;
/// Ranges that are listed at once.
const AT_ONCE: usize = 8;

/// A key that has the form of a block's, in whatever folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockName {
    pub slice: u64,
    pub index: u64,
    pub size: u64,
}

impl BlockName {
    /// Parses `chunks/{folder}/{folder}/{slice}_{index}_{size}`; none for other keys.
    pub fn parse(key: &str) -> Option<Self> {
        let mut parts = key.strip_prefix(CHUNKS)?.split('/');
        let (name, rest) = (parts.by_ref().nth(2)?, parts.next());
        let mut numbers = name.split('_');
        let mut number = || numbers.next()?.parse::<u64>().ok();
        let found = Self { slice: number()?, index: number()?, size: number()? };
        (rest.is_none() && numbers.next().is_none()).then_some(found)
    }
}

impl ScannedVolume {
    /// All objects of blocks, page by page, in no order.
    pub fn pages(&self) -> impl Stream<Item = Result<Vec<Object>>> + '_ {
        let ranges = ranges(self.layout.hash_prefix);
        let lists = ranges.into_iter().map(|range| Box::pin(list(self.objects.as_ref(), range)));
        stream::iter(lists).flatten_unordered(AT_ONCE)
    }
}

/// The keys after `after` and not after `until`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyRange {
    after: String,
    until: Option<String>,
}

/// Ranges that together cover every key, whatever it is: they are cut where the folders of blocks
/// begin, so that each holds a similar number of them.
fn ranges(hash_prefix: bool) -> Vec<KeyRange> {
    let mut cuts: Vec<String> = if hash_prefix {
        "123456789ABCDEF".chars().map(|digit| format!("{CHUNKS}{digit}")).collect()
    } else {
        // A folder holds a million ids, and the folders in it a thousand each.
        let first = (1..10).map(|digit| format!("{CHUNKS}0/{digit}"));
        first.chain((1..10).map(|digit| format!("{CHUNKS}{digit}"))).collect()
    };
    cuts.sort_unstable();
    let mut ranges = Vec::new();
    let mut after = String::new();
    for cut in cuts {
        ranges.push(KeyRange { after, until: Some(cut.clone()) });
        after = cut;
    }
    ranges.push(KeyRange { after, until: None });
    ranges
}

/// Lists a range. Ends after the first failure.
fn list(store: &dyn ObjectStore, range: KeyRange) -> impl Stream<Item = Result<Vec<Object>>> + '_ {
    stream::unfold(Some(range), move |range| async move {
        let range = range?;
        let page = match store.list(CHUNKS, &range.after, PAGE).await {
            Ok(page) => page,
            Err(error) => return Some((Err(error), None)),
        };
        let count = page.len();
        let next = page.last().map(|last| last.key.clone());
        let is_within = |object: &Object| range.until.as_ref().is_none_or(|u| object.key <= *u);
        let page: Vec<Object> = page.into_iter().filter(is_within).collect();
        let goes_on = count == PAGE && page.len() == count;
        let next = next.filter(|_| goes_on);
        Some((Ok(page), next.map(|after| KeyRange { after, until: range.until })))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures::TryStreamExt;

    use super::*;
    use crate::object::mem::MemStore;

    #[test]
    fn names_of_blocks_parse_in_any_folder() {
        let name = BlockName { slice: 12, index: 3, size: 4096 };
        assert_eq!(BlockName::parse("chunks/0/0/12_3_4096"), Some(name));
        assert_eq!(BlockName::parse("chunks/FF/9/12_3_4096"), Some(name));
        for key in ["chunks/0/12_3_4", "chunks/0/0/0/1_2_3", "chunks/0/0/1_2", "x/0/0/1_2_3"] {
            assert_eq!(BlockName::parse(key), None, "{key}");
        }
        assert_eq!(BlockName::parse("chunks/0/0/a_b_c"), None);
        assert_eq!(BlockName::parse("chunks/0/0/1_2_3_4"), None);
    }

    #[tokio::test]
    async fn every_object_is_listed_once() {
        let store: Arc<MemStore> = Arc::default();
        let mut keys: Vec<String> =
            (0..5000).map(|id| format!("chunks/0/{}/{id}_0_1", id / 1000)).collect();
        keys.extend((0..256).map(|id| format!("chunks/{id:02X}/0/{id}_0_1")));
        keys.extend(
            ["chunks/!", "chunks/0/1", "chunks/5", "chunks/zz/y", "chunks/12/1/1_1_1"]
                .map(str::to_owned),
        );
        for key in keys.iter().chain(["other".to_owned()].iter()) {
            store.put(key, Bytes::from_static(b"x"), 0).await.unwrap();
        }
        keys.sort();
        for hash_prefix in [false, true] {
            let mut found = Vec::new();
            for range in ranges(hash_prefix) {
                let pages: Vec<Vec<Object>> =
                    list(store.as_ref(), range).try_collect().await.unwrap();
                found.extend(pages.into_iter().flatten().map(|object| object.key));
            }
            found.sort();
            assert_eq!(found, keys);
        }
    }
}
