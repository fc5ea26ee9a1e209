//! Encrypted stores for benchmarks, and the plain ciphers as their baseline.

use std::sync::Arc;

use anyhow::{Context, Result};
use jfs::object::encrypt::Encrypted;
use jfs::object::{Encryption, ObjectStore};
use jfs::secret::Secret;
use ring::aead::{AES_256_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, UnboundKey};

pub const CIPHERS: [(&str, &Algorithm); 2] =
    [("aes256gcm-rsa", &AES_256_GCM), ("chacha20-rsa", &CHACHA20_POLY1305)];

const KEY: &str = include_str!("../../src/object/wrappers/encrypt/golden/pkcs1.pem");

/// Returns a store that encrypts its objects.
pub fn encrypted(objects: Arc<dyn ObjectStore>, algo: &str) -> Result<Arc<dyn ObjectStore>> {
    let encryption =
        Encryption { algo: algo.to_owned(), key: Secret::new(KEY), passphrase: Secret::default() };
    Ok(Arc::new(Encrypted::new(objects, &encryption)?))
}

/// Returns a key for the plain cipher.
pub fn key(cipher: &'static Algorithm) -> Result<LessSafeKey> {
    Ok(LessSafeKey::new(UnboundKey::new(cipher, &[7; 32]).ok().context("a key of 32 bytes")?))
}
