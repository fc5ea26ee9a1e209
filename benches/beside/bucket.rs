//! Encryption for benches: a key made for the run, and the ciphers without us in between.

use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use jfs::object::encrypt::Encrypted;
use jfs::object::{Encryption, ObjectStore};
use jfs::secret::Secret;
use ring::aead::{AES_256_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use rsa::RsaPrivateKey;
use rsa::pkcs1::{EncodeRsaPrivateKey, LineEnding};

pub const CIPHERS: [(&str, &Algorithm); 2] =
    [("aes256gcm-rsa", &AES_256_GCM), ("chacha20-rsa", &CHACHA20_POLY1305)];

/// A store whose bodies are encrypted.
pub fn encrypted(objects: Arc<dyn ObjectStore>, algo: &str) -> Result<Arc<dyn ObjectStore>> {
    static PEM: OnceLock<String> = OnceLock::new();
    let pem = match PEM.get() {
        Some(pem) => pem,
        None => {
            let key = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2048)?;
            let made = key.to_pkcs1_pem(LineEnding::LF)?.to_string();
            PEM.get_or_init(|| made)
        }
    };
    let encryption = Encryption {
        algo: algo.to_owned(),
        key: Secret::new(pem.as_str()),
        passphrase: Secret::default(),
    };
    Ok(Arc::new(Encrypted::new(objects, &encryption)?))
}

/// The cipher alone.
pub fn key(cipher: &'static Algorithm) -> Result<LessSafeKey> {
    Ok(LessSafeKey::new(UnboundKey::new(cipher, &[7; 32]).ok().context("a key of 32 bytes")?))
}
