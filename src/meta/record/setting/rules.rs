//! Defaults of a new volume, and the allowed values of each field.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Setting, Tier};
use crate::error::{Error, Result};
use crate::meta::record::version::MAX_META_VERSION;

/// Length of a UUID in its usual form, with hyphens.
const UUID_LEN: usize = 36;
const MIN_BLOCK: u64 = 64 << 10;
const MAX_BLOCK: u64 = 16 << 20;
const MAX_SHARDS: i64 = 256;
/// The Go client overflows above this.
const MAX_TRASH_DAYS: i64 = 106_751;

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    None,
    Lz4,
    Zstd,
}

impl Compression {
    /// Parses a name in any case; an empty one means none.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "" | "none" => Self::None,
            "lz4" => Self::Lz4,
            "zstd" => Self::Zstd,
            _ => return None,
        })
    }
}

/// Returns the block size in KiB for a requested size in bytes: the next lower power of two, from
/// 64 KiB to 16 MiB.
pub fn block_size_for(bytes: u64) -> i64 {
    let rounded = if bytes == 0 { 0 } else { 1 << bytes.ilog2() };
    (rounded.clamp(MIN_BLOCK, MAX_BLOCK) >> 10).cast_signed()
}

impl Setting {
    /// Creates the setting of a new volume with all defaults, without a bucket.
    pub fn new(name: &str, uuid: Uuid) -> Result<Self> {
        check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            uuid: uuid.to_string(),
            storage: "file".to_owned(),
            tiers: Some(BTreeMap::from([(0, Tier::default())])),
            block_size: block_size_for(4 << 20),
            compression: "none".to_owned(),
            encrypt_algo: "aes256gcm-rsa".to_owned(),
            trash_days: 1,
            meta_version: MAX_META_VERSION,
            // The first release with dir stats.
            min_client_version: "1.1.0-A".to_owned(),
            dir_stats: true,
            ..Self::default()
        })
    }

    /// Excludes clients that would damage the records of the volume's features.
    pub fn require_clients_for_features(&mut self) {
        if self.enable_acl {
            self.require_client("1.2.0-A");
        }
        if !self.ranger_rest_url.is_empty() || !self.ranger_service.is_empty() {
            self.require_client("1.3.0-A");
        }
        if !self.kerb_conf.is_empty() {
            self.require_client("1.4.0-A");
        }
    }

    pub fn compression(&self) -> Result<Compression> {
        Compression::from_name(&self.compression).ok_or_else(|| {
            Error::bad_input(format!(
                "compression {:?} is none of none, lz4, zstd",
                shortened(&self.compression)
            ))
        })
    }

    /// Returns an error if a field that users choose has a value that this client would not write.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        self.compression()?;
        if self.block_size != block_size_for(self.block_bytes()) {
            return Err(Error::bad_input(format!(
                "block size {} KiB is not a power of two from 64 to 16384",
                self.block_size
            )));
        }
        if !(0..=MAX_SHARDS).contains(&self.shards) {
            return Err(Error::bad_input(format!(
                "shards {} is not within 0 and {MAX_SHARDS}",
                self.shards
            )));
        }
        if self.trash_days < 0 {
            return Err(Error::bad_input(format!("trash days {} is negative", self.trash_days)));
        }
        if self.trash_days > MAX_TRASH_DAYS {
            return Err(Error::bad_input(format!(
                "trash days {} is more than {MAX_TRASH_DAYS}",
                self.trash_days
            )));
        }
        for tier in self.tiers.iter().flat_map(BTreeMap::values) {
            check_tag(&tier.tag)?;
        }
        Ok(())
    }
}

impl Setting {
    /// Returns an error if a stored setting is not safe to use. Its values become sizes of memory
    /// and names of objects and directories, so values that no client writes are refused.
    pub fn check_stored(&self) -> Result<()> {
        let refuse =
            |what: String| Error::Refused(format!("the volume's setting is refused: {what}"));
        self.check().map_err(|error| refuse(error.to_string()))?;
        if Uuid::try_parse(&self.uuid).is_err() || self.uuid.len() != UUID_LEN {
            return Err(refuse(format!("UUID {:?} is invalid", shortened(&self.uuid))));
        }
        Ok(())
    }
}

/// Returns the start of a text that may be long, for errors.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Volume names become object prefixes and bucket labels: 3 to 63 of `a-z`, `0-9` and `-`, without
/// a `-` at either end.
fn check_name(name: &str) -> Result<()> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_valid = (3..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if is_valid {
        return Ok(());
    }
    let name = shortened(name);
    Err(Error::bad_input(format!(
        "volume name {name:?} is not 3 to 63 of a-z, 0-9 and -, beginning and ending with a letter \
         or digit"
    )))
}

/// A tag is empty or `key=value`.
fn check_tag(tag: &str) -> Result<()> {
    let is_pair =
        |(key, value): (&str, &str)| !key.is_empty() && !value.is_empty() && !value.contains('=');
    if tag.is_empty() || tag.split_once('=').is_some_and(is_pair) {
        return Ok(());
    }
    Err(Error::bad_input(format!("tag {:?} is not key=value", shortened(tag))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_setting() -> Setting {
        Setting::new("vol", Uuid::nil()).unwrap()
    }

    #[test]
    fn volume_names_are_checked() {
        let longest = "a".repeat(63);
        for name in ["abc", "a-b", "0a9", "a--b", &longest] {
            Setting::new(name, Uuid::nil()).unwrap();
        }
        let too_long = "a".repeat(64);
        for name in ["", "ab", "-ab", "ab-", "aBc", "a_b", "a.b", "äää", "abc\n", &too_long] {
            assert!(Setting::new(name, Uuid::nil()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn block_sizes_are_rounded_down_and_clamped() {
        for (bytes, kib) in [
            (0, 64),
            (1, 64),
            (64 << 10, 64),
            (300 << 10, 256),
            ((4 << 20) - 1, 2048),
            (4 << 20, 4096),
            (16 << 20, 16384),
            (u64::MAX, 16384),
        ] {
            assert_eq!(block_size_for(bytes), kib, "{bytes}");
        }
    }

    #[test]
    fn a_new_setting_is_valid() {
        new_setting().check().unwrap();
    }

    #[test]
    fn errors_name_the_invalid_field() {
        let bad = [
            (Setting { compression: "gzip".into(), ..new_setting() }, "compression \"gzip\""),
            (Setting { block_size: 100, ..new_setting() }, "block size 100"),
            (Setting { block_size: -64, ..new_setting() }, "block size -64"),
            (Setting { block_size: 32768, ..new_setting() }, "block size 32768"),
            (Setting { shards: 257, ..new_setting() }, "shards 257"),
            (Setting { shards: -1, ..new_setting() }, "shards -1"),
            (Setting { trash_days: -1, ..new_setting() }, "trash days -1"),
            (Setting { trash_days: i64::MAX, ..new_setting() }, "trash days 9223372036854775807"),
        ];
        for (setting, what) in bad {
            let error = setting.check().unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
        }
    }

    #[test]
    fn an_unsafe_stored_setting_is_refused_with_the_field() {
        new_setting().check_stored().unwrap();
        Setting { uuid: Uuid::new_v4().to_string(), ..new_setting() }.check_stored().unwrap();
        for kib in [-1, 0, 1, 3, 32, 100, 100_000, i64::MIN, i64::MAX] {
            let told = Setting { block_size: kib, ..new_setting() }.check_stored().unwrap_err();
            assert!(told.to_string().contains(&format!("block size {kib} KiB")), "{told}");
        }
        for kib in (6..=14).map(|power| 1 << power) {
            Setting { block_size: kib, ..new_setting() }.check_stored().unwrap();
        }
        for name in ["../../..", "a/b", "..", "", "a\0b", &"a".repeat(1 << 20)] {
            let told =
                Setting { name: name.to_owned(), ..new_setting() }.check_stored().unwrap_err();
            let told = told.to_string();
            assert!(told.contains("volume name") && told.len() < 1000, "{told}");
        }
        for uuid in ["", "..", "../../x", "{00000000-0000-0000-0000-000000000000}", "0"] {
            let told =
                Setting { uuid: uuid.to_owned(), ..new_setting() }.check_stored().unwrap_err();
            assert!(told.to_string().contains("UUID"), "{told}");
        }
    }

    #[test]
    fn tags_are_pairs() {
        for (tag, is_valid) in [
            ("", true),
            ("k=v", true),
            ("k", false),
            ("=v", false),
            ("k=", false),
            ("a=b=c", false),
        ] {
            let mut setting = new_setting();
            setting.tiers_mut().insert(1, Tier { id: 1, tag: tag.into(), ..Tier::default() });
            assert_eq!(setting.check().is_ok(), is_valid, "{tag:?}");
        }
    }

    #[test]
    fn compression_names_match_in_any_case() {
        for (name, want) in [
            ("", Some(Compression::None)),
            ("none", Some(Compression::None)),
            ("LZ4", Some(Compression::Lz4)),
            ("Zstd", Some(Compression::Zstd)),
            ("gzip", None),
        ] {
            assert_eq!(Compression::from_name(name), want, "{name:?}");
        }
    }

    #[test]
    fn features_exclude_clients_that_do_not_support_them() {
        for (setting, min) in [
            (new_setting(), "1.1.0-A"),
            (Setting { enable_acl: true, ..new_setting() }, "1.2.0-A"),
            (Setting { ranger_service: "s".into(), ..new_setting() }, "1.3.0-A"),
            (Setting { enable_acl: true, kerb_conf: "k".into(), ..new_setting() }, "1.4.0-A"),
        ] {
            let mut setting = setting;
            setting.require_clients_for_features();
            assert_eq!(setting.min_client_version, min);
        }
    }
}
