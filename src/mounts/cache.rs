//! The block cache of this node, configured by the node's own options and not by its first user.
//!
//! A volume chooses its share (`cache-size`) and what it keeps there.

use crate::error::{Error, Result};
use crate::options::comma_list;
use crate::options::mount::{CacheArgs, MountArgs};

/// The options of a node's cache.
const NODE_OPTIONS: &[&str] = &[
    "cache-eviction",
    "cache-expire",
    "cache-items",
    "cache-mode",
    "cache-scan-interval",
    "cache-size",
    "free-space-ratio",
    "max-stage-write",
    "verify-cache-checksum",
];

/// The settings of the cache that all volumes share.
#[derive(Debug, Clone)]
pub struct NodeCache {
    args: CacheArgs,
    max_stage_write: usize,
}

impl NodeCache {
    /// Reads the settings from the cache directories and a list of mount options.
    pub fn read(dirs: &str, options: &str) -> Result<Self> {
        if dirs.split([':', ',']).any(|dir| dir.trim() == "memory") {
            return Err(Error::bad_input(
                "--cache-dir memory: not possible in a driver, where all memory is one budget",
            ));
        }
        if let Some((name, _)) =
            comma_list::pairs(options).find(|(name, _)| !NODE_OPTIONS.contains(name))
        {
            let known = NODE_OPTIONS.join(", ");
            return Err(Error::bad_input(format!(
                "--cache-options {name}: unknown; there are {known}"
            )));
        }
        let read = MountArgs::from_lists([options]);
        let mut read =
            read.map_err(|error| Error::bad_input(format!("--cache-options: {error:#}")))?;
        read.cache.cache_dir = Some(dirs.to_owned());
        Ok(Self { args: read.cache, max_stage_write: read.storage.max_stage_write })
    }

    /// Replaces the cache options of a volume by those of the node. The directory is replaced too,
    /// unless the volume was allowed to choose its own.
    pub fn apply_to(&self, args: &mut MountArgs) -> Result<()> {
        let (node, cache) = (&self.args, &mut args.cache);
        if node.cache_size == 0 {
            if cache.writeback {
                return Err(Error::bad_input(
                    "mount option writeback needs a cache, but --cache-options sets cache-size=0",
                ));
            }
            cache.cache_size = 0;
        }
        if cache.cache_dir.is_none() {
            cache.cache_dir.clone_from(&node.cache_dir);
        }
        cache.total_cache_size = Some(node.cache_size);
        cache.cache_items = node.cache_items;
        cache.cache_mode = node.cache_mode;
        cache.free_space_ratio = node.free_space_ratio;
        cache.verify_cache_checksum.clone_from(&node.verify_cache_checksum);
        cache.cache_eviction.clone_from(&node.cache_eviction);
        cache.cache_scan_interval = node.cache_scan_interval;
        cache.cache_expire = node.cache_expire;
        args.storage.max_stage_write = self.max_stage_write;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_volume_does_not_configure_the_cache_of_others() {
        let node = NodeCache::read("/node", "cache-size=10G,free-space-ratio=0.3").unwrap();
        let greedy =
            "cache-size=1T,free-space-ratio=0.01,cache-mode=0666,verify-cache-checksum=none";
        let modest = "cache-size=1G,cache-expire=1s,cache-items=1";
        let options = [greedy, modest].map(|list| {
            let mut args = MountArgs::from_lists([list]).unwrap();
            node.apply_to(&mut args).unwrap();
            let share = args.cache.cache_size;
            (share, format!("{:?}", args.cache.cache(&args.storage).unwrap().unwrap()))
        });
        assert_eq!(options[0].1, options[1].1, "one cache for both");
        assert!(options[0].1.contains("0.3") && options[0].1.contains("/node"), "{options:?}");
        assert_eq!((options[0].0, options[1].0), (1 << 40, 1 << 30), "each has its share");
    }

    #[test]
    fn a_volume_may_have_no_cache_and_so_may_a_node() {
        let node = NodeCache::read("/node", "").unwrap();
        let mut args = MountArgs::from_lists(["cache-size=0"]).unwrap();
        node.apply_to(&mut args).unwrap();
        assert!(args.cache.cache(&args.storage).unwrap().is_none());

        let none = NodeCache::read("/node", "cache-size=0").unwrap();
        let mut args = MountArgs::from_lists(["cache-size=1G"]).unwrap();
        none.apply_to(&mut args).unwrap();
        assert!(args.cache.cache(&args.storage).unwrap().is_none());
        let mut args = MountArgs::from_lists(["writeback"]).unwrap();
        assert!(none.apply_to(&mut args).unwrap_err().to_string().contains("writeback"));
    }

    #[test]
    fn options_that_are_not_about_the_cache_are_refused_at_the_start() {
        for (dirs, options, word) in [
            ("memory", "", "memory"),
            ("/a:memory", "", "memory"),
            ("/a", "writeback", "writeback"),
            ("/a", "cache-dir=/b", "cache-dir"),
            ("/a", "cache-size=much", "cache-size"),
        ] {
            let error = NodeCache::read(dirs, options).unwrap_err().to_string();
            assert!(error.contains(word) && error.starts_with("--cache-"), "{error}");
        }
    }
}
