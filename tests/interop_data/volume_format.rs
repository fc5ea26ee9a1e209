//! Formats of volumes: compression, encryption, naming and sharding of blocks.

use std::path::Path;

#[derive(Debug, Clone, Copy)]
pub struct VolumeFormat {
    pub compression: &'static str,
    pub cipher: Option<&'static str>,
    pub hash_prefix: bool,
    pub shards: u32,
    pub block: u64,
}

const BLOCKS: [u64; 4] = [64 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Returns every combination of naming and sharding for one compression and cipher. The block sizes
/// rotate, so that each is combined with every compression, cipher, naming and sharding.
pub fn formats_with(compression: &'static str, cipher: Option<&'static str>) -> Vec<VolumeFormat> {
    let turn = ["none", "lz4", "zstd"].iter().position(|name| *name == compression).unwrap()
        + [None, Some("aes256gcm-rsa"), Some("chacha20-rsa")]
            .iter()
            .position(|name| *name == cipher)
            .unwrap();
    let mut formats = Vec::new();
    for hash_prefix in [false, true] {
        for shards in [1, 3] {
            let block = BLOCKS[(turn + formats.len()) % BLOCKS.len()];
            formats.push(VolumeFormat { compression, cipher, hash_prefix, shards, block });
        }
    }
    formats
}

impl VolumeFormat {
    /// Returns the options of `format`, which are the same for both clients.
    pub fn options(&self, key: &Path) -> Vec<String> {
        let mut options = vec![
            "--compress".to_owned(),
            self.compression.to_owned(),
            "--block-size".to_owned(),
            format!("{}K", self.block >> 10),
            "--trash-days".to_owned(),
            "0".to_owned(),
        ];
        if let Some(cipher) = self.cipher {
            let key = key.to_str().unwrap().to_owned();
            options.extend(["--encrypt-rsa-key".to_owned(), key]);
            options.extend(["--encrypt-algo".to_owned(), cipher.to_owned()]);
        }
        if self.hash_prefix {
            options.push("--hash-prefix".to_owned());
        }
        if self.shards > 1 {
            options.extend(["--shards".to_owned(), self.shards.to_string()]);
        }
        options
    }
}
