//! RSA private keys in PEM format, plain or protected by a passphrase.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockCipher, BlockDecryptMut, KeyIvInit};
use md5::{Digest, Md5};
use pem::Pem;
use pkcs8::EncryptedPrivateKeyInfo;
use pkcs8::pkcs5::EncryptionScheme;
use pkcs8::pkcs5::pbes2::Kdf;
use rsa::RsaPrivateKey;
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::pkcs8::DecodePrivateKey;
use rsa::traits::{PrivateKeyParts, PublicKeyParts};

use crate::secret::Secret;

/// Longer than any usable key.
const MAX_LENGTH: usize = 64 << 10;
/// Bits of the largest key that encrypts a block in reasonable time.
const MAX_BITS: usize = 16 << 10;
/// Limits on the cost of deriving a key from a passphrase: tools use a hundredth of it. The key
/// file states the cost, and comes from outside.
const MAX_ROUNDS: u32 = 10_000_000;
const MAX_SCRYPT_MEMORY: u64 = 64 << 20;
const MAX_SCRYPT_LANES: u16 = 16;

const NEEDS_PASSPHRASE: &str =
    "the private key is protected by a passphrase: set JFS_RSA_PASSPHRASE to it";
const WRONG_PASSPHRASE: &str = "the passphrase of the private key is wrong";

/// Parses a key. The passphrase is ignored if the key needs none.
pub fn parse(text: &Secret, passphrase: &Secret) -> Result<RsaPrivateKey, String> {
    if text.expose().len() > MAX_LENGTH {
        return Err(format!("the private key is longer than {MAX_LENGTH} bytes"));
    }
    // The parse error is not shown: it could contain a part of the key.
    let pem = pem::parse(text.expose()).map_err(|_| "the private key is not PEM".to_owned())?;
    let given = || match passphrase.expose() {
        "" => Err(NEEDS_PASSPHRASE.to_owned()),
        passphrase => Ok(passphrase.as_bytes()),
    };
    if pem.tag() == "ENCRYPTED PRIVATE KEY" {
        let sealed = EncryptedPrivateKeyInfo::try_from(pem.contents())
            .map_err(|error| format!("the private key does not decode: {error}"))?;
        check_cost(&sealed.encryption_algorithm)?;
        let plain = sealed.decrypt(given()?).map_err(|error| match error {
            pkcs8::Error::EncryptedPrivateKey(cause) if is_foreign(&cause) => {
                format!("the private key is protected in a way that is not supported: {cause}")
            }
            _ => WRONG_PASSPHRASE.to_owned(),
        })?;
        return decode(plain.as_bytes());
    }
    match pem.headers().get("DEK-Info") {
        Some(how) => {
            let plain = unlock(&pem, how, given()?)?;
            // The padding can match by chance, for one wrong passphrase in 256.
            decode(&plain).map_err(|_| WRONG_PASSPHRASE.to_owned())
        }
        None => decode(pem.contents()),
    }
}

fn decode(der: &[u8]) -> Result<RsaPrivateKey, String> {
    let key = RsaPrivateKey::from_pkcs1_der(der)
        .or_else(|_| RsaPrivateKey::from_pkcs8_der(der))
        .map_err(|_| "the private key is no RSA key".to_owned())?;
    if key.size() * 8 > MAX_BITS || key.primes().len() != 2 {
        return Err(format!("the private key has more than {MAX_BITS} bits or than two primes"));
    }
    key.validate().map_err(|error| format!("the private key is not valid: {error}"))?;
    Ok(key)
}

/// Refuses a key whose protection would take hours or all memory to open.
fn check_cost(scheme: &EncryptionScheme<'_>) -> Result<(), String> {
    let Some(parameters) = scheme.pbes2() else { return Ok(()) };
    let is_cheap = match &parameters.kdf {
        Kdf::Pbkdf2(kdf) => kdf.iteration_count <= MAX_ROUNDS,
        Kdf::Scrypt(kdf) => {
            let memory = kdf.cost_parameter.saturating_mul(128 * u64::from(kdf.block_size));
            memory <= MAX_SCRYPT_MEMORY && kdf.parallelization <= MAX_SCRYPT_LANES
        }
        _ => false,
    };
    is_cheap.then_some(()).ok_or_else(|| "the private key is too expensive to decrypt".to_owned())
}

/// Whether the kind of protection, and not the passphrase, is the problem.
fn is_foreign(cause: &pkcs8::pkcs5::Error) -> bool {
    use pkcs8::pkcs5::Error;
    matches!(
        cause,
        Error::NoPbes1CryptSupport
            | Error::UnsupportedAlgorithm { .. }
            | Error::AlgorithmParametersInvalid { .. }
    )
}

/// Decrypts OpenSSL's legacy format: `DEK-Info: AES-256-CBC,<initialization vector in hex>`.
fn unlock(pem: &Pem, how: &str, passphrase: &[u8]) -> Result<Vec<u8>, String> {
    let (cipher, vector) = how.split_once(',').unwrap_or((how, ""));
    let vector = hex(vector.trim()).ok_or("the private key has a DEK-Info without a vector")?;
    let open = match cipher.trim() {
        "AES-128-CBC" => cbc_open::<aes::Aes128>,
        "AES-192-CBC" => cbc_open::<aes::Aes192>,
        "AES-256-CBC" => cbc_open::<aes::Aes256>,
        "DES-EDE3-CBC" => cbc_open::<des::TdesEde3>,
        "DES-CBC" => cbc_open::<des::Des>,
        other => {
            return Err(format!("the private key is protected by {other}, which is not supported"));
        }
    };
    open(pem.contents(), &vector, passphrase)
}

fn cbc_open<C>(sealed: &[u8], vector: &[u8], passphrase: &[u8]) -> Result<Vec<u8>, String>
where
    C: BlockCipher + BlockDecryptMut + aes::cipher::KeyInit,
{
    let short = || "the private key has a DEK-Info whose vector is too short".to_owned();
    let salt = vector.get(..8).ok_or_else(short)?;
    let key = derive(passphrase, salt, C::key_size());
    let open = cbc::Decryptor::<C>::new_from_slices(&key, vector).map_err(|_| short())?;
    open.decrypt_padded_vec_mut::<Pkcs7>(sealed).map_err(|_| WRONG_PASSPHRASE.to_owned())
}

/// Derives a key from a passphrase by repeated MD5, as OpenSSL did.
fn derive(passphrase: &[u8], salt: &[u8], length: usize) -> Vec<u8> {
    let mut key = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while key.len() < length {
        let mut digest = Md5::new();
        digest.update(&last);
        digest.update(passphrase);
        digest.update(salt);
        last = digest.finalize().to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(length);
    key
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(pair).collect()
}
