//! Encryption of bodies, in JuiceFS's format.
//!
//! Each object has a random key of its own, stored with it, wrapped with the volume's RSA key:
//!
//! ```text
//! u16 length of the wrapped key | u8 length of the nonce | wrapped key | nonce | ciphertext and tag
//! ```

mod key;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use rsa::rand_core::OsRng;
use rsa::sha2::Sha256;
use rsa::traits::PublicKeyParts;
use rsa::{Oaep, RsaPrivateKey};
use tokio::sync::Semaphore;

use crate::error::{Error, Result};
use crate::object::{Encryption, GetRequest, Object, ObjectStore};

/// The OAEP label that JuiceFS uses for wrapped keys.
const LABEL: &str = "keys";

/// Key length of both ciphers.
const KEY_LEN: usize = 32;

/// Length of the two length fields.
const HEADER: usize = 3;

/// A store whose bodies are encrypted. Reported sizes are those of the encrypted objects.
pub struct Encrypted {
    inner: Arc<dyn ObjectStore>,
    place: String,
    cipher: Arc<Cipher>,
    /// One per processor, since the work is CPU-bound.
    permits: Arc<Semaphore>,
}

impl Encrypted {
    /// Fails if the key cannot be used, and reports why.
    pub fn new(inner: Arc<dyn ObjectStore>, encryption: &Encryption) -> Result<Self> {
        let cipher = Arc::new(Cipher::new(encryption)?);
        let place = format!("{}(encrypted)", inner.place());
        let permits = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self { inner, place, cipher, permits: Arc::new(Semaphore::new(permits)) })
    }

    /// Runs on a blocking thread: a private-key operation takes a millisecond, a large body a
    /// little longer.
    async fn work(
        &self,
        action: &'static str,
        key: &str,
        body: Bytes,
        work: fn(&Cipher, Bytes) -> Result<Bytes, String>,
    ) -> Result<Bytes> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let cipher = Arc::clone(&self.cipher);
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&cipher, body)
        });
        let outcome = done.await.unwrap_or_else(|error| Err(error.to_string()));
        outcome.map_err(|cause| Error::Storage {
            place: self.place.clone(),
            action,
            key: key.to_owned(),
            cause,
        })
    }
}

#[async_trait]
impl ObjectStore for Encrypted {
    fn place(&self) -> &str {
        &self.place
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<Bytes> {
        let most = request.max_size.saturating_add(self.cipher.overhead());
        let stored = self.inner.get(key, GetRequest::whole_up_to(most)).await?;
        let body = self.work("decrypt", key, stored, Cipher::open).await?;
        Ok(request.range.map_or(body.clone(), |part| crate::object::part(&body, &part)))
    }

    async fn put(&self, key: &str, body: Bytes, tier: u8) -> Result<()> {
        let sealed = self.work("encrypt", key, body, |cipher, body| cipher.seal(&body)).await?;
        self.inner.put(key, sealed, tier).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).await
    }

    async fn head(&self, key: &str) -> Result<Object> {
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Vec<Object>> {
        self.inner.list(prefix, after, limit).await
    }

    async fn create(&self) -> Result<()> {
        self.inner.create().await
    }

    /// A range of an object can only be decrypted with the rest of it.
    fn has_cheap_ranges(&self) -> bool {
        false
    }

    fn verifies_whole(&self) -> bool {
        true
    }
}

/// The volume's RSA key, and the cipher for the keys of objects.
struct Cipher {
    key: RsaPrivateKey,
    algorithm: &'static Algorithm,
    random: SystemRandom,
}

impl Cipher {
    fn new(encryption: &Encryption) -> Result<Self> {
        let algorithm = match encryption.algo.as_str() {
            "" | "aes256gcm-rsa" => &AES_256_GCM,
            "chacha20-rsa" => &CHACHA20_POLY1305,
            other => {
                return Err(Error::Refused(format!(
                    "encryption {other:?} is not supported; there are: aes256gcm-rsa, chacha20-rsa"
                )));
            }
        };
        let key = key::parse(&encryption.key, &encryption.passphrase).map_err(Error::BadInput)?;
        Ok(Self { key, algorithm, random: SystemRandom::new() })
    }

    /// Returns how many bytes longer an encrypted object is.
    fn overhead(&self) -> u64 {
        let tag = self.algorithm.tag_len();
        (HEADER + self.key.size() + ring::aead::NONCE_LEN + tag) as u64
    }

    fn seal(&self, plain: &[u8]) -> Result<Bytes, String> {
        let failed = |_| "the system provides no random bytes".to_owned();
        let mut own = [0; KEY_LEN];
        self.random.fill(&mut own).map_err(failed)?;
        let mut nonce = [0; ring::aead::NONCE_LEN];
        self.random.fill(&mut nonce).map_err(failed)?;
        let padding = Oaep::new_with_label::<Sha256, _>(LABEL);
        let wrapped = self
            .key
            .to_public_key()
            .encrypt(&mut OsRng, padding, &own)
            .map_err(|error| format!("cannot wrap the key of the object: {error}"))?;
        let cipher = self.cipher(&own)?;

        let begin = HEADER + wrapped.len() + nonce.len();
        let mut sealed = BytesMut::with_capacity(begin + plain.len() + self.algorithm.tag_len());
        sealed.put_u16(u16::try_from(wrapped.len()).map_err(|error| error.to_string())?);
        sealed.put_u8(u8::try_from(nonce.len()).map_err(|error| error.to_string())?);
        sealed.put_slice(&wrapped);
        sealed.put_slice(&nonce);
        sealed.put_slice(plain);
        let tag = cipher
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::empty(),
                &mut sealed[begin..],
            )
            .map_err(|_| "it is too large to be encrypted".to_owned())?;
        sealed.put_slice(tag.as_ref());
        Ok(sealed.freeze())
    }

    fn open(&self, stored: Bytes) -> Result<Bytes, String> {
        let malformed = || "it is not an encrypted object".to_owned();
        let (lengths, rest) = stored.split_first_chunk::<HEADER>().ok_or_else(malformed)?;
        let wrapped = usize::from(u16::from_be_bytes([lengths[0], lengths[1]]));
        let (wrapped, rest) = rest.split_at_checked(wrapped).ok_or_else(malformed)?;
        let (nonce, _) = rest.split_at_checked(usize::from(lengths[2])).ok_or_else(malformed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| malformed())?;
        if wrapped.len() != self.key.size() {
            return Err("it was encrypted with another key".to_owned());
        }
        let padding = Oaep::new_with_label::<Sha256, _>(LABEL);
        let own = self
            .key
            .decrypt_blinded(&mut OsRng, padding, wrapped)
            .map_err(|_| "it was encrypted with another key, or is damaged".to_owned())?;
        let cipher = self.cipher(&own)?;

        let begin = HEADER + wrapped.len() + usize::from(lengths[2]);
        // Without a copy if the body is not shared, which is the normal case.
        let mut body = stored.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let plain = cipher
            .open_in_place(nonce, Aad::empty(), &mut body[begin..])
            .map_err(|_| "it is damaged, or encrypted in another way than the volume".to_owned())?;
        let length = plain.len();
        body.truncate(begin + length);
        Ok(body.freeze().slice(begin..))
    }

    fn cipher(&self, own: &[u8]) -> Result<LessSafeKey, String> {
        let key = UnboundKey::new(self.algorithm, own)
            .map_err(|_| format!("its key has {} bytes, not {KEY_LEN}", own.len()))?;
        Ok(LessSafeKey::new(key))
    }
}

#[cfg(test)]
mod tests;
