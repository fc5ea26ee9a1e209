//! What a setting may say: defaults of a fresh volume, and the limits of each field.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Setting, Tier};
use crate::error::{Error, Result};
use crate::meta::record::version::MAX_META_VERSION;

/// Letters of a UUID as everyone writes it, with hyphens.
const UUID_LEN: usize = 36;
const MIN_BLOCK: u64 = 64 << 10;
const MAX_BLOCK: u64 = 16 << 20;
const MAX_SHARDS: i64 = 256;
/// More than that is beyond what the Go client can count in.
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
    /// By its name in any case; empty is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "" | "none" => Self::None,
            "lz4" => Self::Lz4,
            "zstd" => Self::Zstd,
            _ => return None,
        })
    }
}

/// Block size in KiB for a wish in bytes: the next lower power of two within 64 KiB and 16 MiB.
pub fn block_size_for(bytes: u64) -> i64 {
    let rounded = if bytes == 0 { 0 } else { 1 << bytes.ilog2() };
    (rounded.clamp(MIN_BLOCK, MAX_BLOCK) >> 10).cast_signed()
}

impl Setting {
    /// A fresh volume with every default; the bucket is still to be named.
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
            // The first release that keeps dir stats.
            min_client_version: "1.1.0-A".to_owned(),
            dir_stats: true,
            ..Self::default()
        })
    }

    /// Shuts out clients that would damage what the volume's features store.
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

    /// Whether every field a user may choose is one this client would write.
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
    /// Whether a setting that was stored by whomever can be used. What it says becomes sizes of
    /// memory, names of objects and of directories, so nothing is taken that no client writes.
    pub fn check_stored(&self) -> Result<()> {
        let refuse =
            |what: String| Error::Refused(format!("the volume's setting is refused: {what}"));
        self.check().map_err(|error| refuse(error.to_string()))?;
        if Uuid::try_parse(&self.uuid).is_err() || self.uuid.len() != UUID_LEN {
            return Err(refuse(format!("UUID {:?} is none", shortened(&self.uuid))));
        }
        Ok(())
    }
}

/// What is told of a text that may be long.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Names become object prefixes and bucket labels: 3 to 63 of `a-z`, `0-9`, `-`, no `-` at an end.
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

    fn fresh() -> Setting {
        Setting::new("vol", Uuid::nil()).unwrap()
    }

    #[test]
    fn names_of_volumes_are_bounded() {
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
    fn block_sizes_round_down_into_their_limits() {
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
    fn a_fresh_setting_is_valid() {
        fresh().check().unwrap();
    }

    #[test]
    fn each_bad_field_is_named() {
        let bad = [
            (Setting { compression: "gzip".into(), ..fresh() }, "compression \"gzip\""),
            (Setting { block_size: 100, ..fresh() }, "block size 100"),
            (Setting { block_size: -64, ..fresh() }, "block size -64"),
            (Setting { block_size: 32768, ..fresh() }, "block size 32768"),
            (Setting { shards: 257, ..fresh() }, "shards 257"),
            (Setting { shards: -1, ..fresh() }, "shards -1"),
            (Setting { trash_days: -1, ..fresh() }, "trash days -1"),
            (Setting { trash_days: i64::MAX, ..fresh() }, "trash days 9223372036854775807"),
        ];
        for (setting, what) in bad {
            let error = setting.check().unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
        }
    }

    #[test]
    fn a_stored_setting_that_nobody_writes_is_refused_by_field() {
        fresh().check_stored().unwrap();
        Setting { uuid: Uuid::new_v4().to_string(), ..fresh() }.check_stored().unwrap();
        for kib in [-1, 0, 1, 3, 32, 100, 100_000, i64::MIN, i64::MAX] {
            let told = Setting { block_size: kib, ..fresh() }.check_stored().unwrap_err();
            assert!(told.to_string().contains(&format!("block size {kib} KiB")), "{told}");
        }
        for kib in (6..=14).map(|power| 1 << power) {
            Setting { block_size: kib, ..fresh() }.check_stored().unwrap();
        }
        for name in ["../../..", "a/b", "..", "", "a\0b", &"a".repeat(1 << 20)] {
            let told = Setting { name: name.to_owned(), ..fresh() }.check_stored().unwrap_err();
            let told = told.to_string();
            assert!(told.contains("volume name") && told.len() < 1000, "{told}");
        }
        for uuid in ["", "..", "../../x", "{00000000-0000-0000-0000-000000000000}", "0"] {
            let told = Setting { uuid: uuid.to_owned(), ..fresh() }.check_stored().unwrap_err();
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
            let mut setting = fresh();
            setting.tiers_mut().insert(1, Tier { id: 1, tag: tag.into(), ..Tier::default() });
            assert_eq!(setting.check().is_ok(), is_valid, "{tag:?}");
        }
    }

    #[test]
    fn compression_is_known_in_any_case() {
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
    fn features_shut_out_clients_that_do_not_know_them() {
        for (setting, min) in [
            (fresh(), "1.1.0-A"),
            (Setting { enable_acl: true, ..fresh() }, "1.2.0-A"),
            (Setting { ranger_service: "s".into(), ..fresh() }, "1.3.0-A"),
            (Setting { enable_acl: true, kerb_conf: "k".into(), ..fresh() }, "1.4.0-A"),
        ] {
            let mut setting = setting;
            setting.require_clients_for_features();
            assert_eq!(setting.min_client_version, min);
        }
    }
}
