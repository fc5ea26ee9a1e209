//! RSA private keys in PEM form, in the clear or behind a passphrase.

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

/// Longer than any key that somebody waits for.
const LONGEST: usize = 64 << 10;
/// Bits of the largest key that encrypts a block in reasonable time.
const LARGEST: usize = 16 << 10;
/// What deriving a key from a passphrase may cost: tools take a hundredth of it. The text of a key
/// says how much it wants, and comes from outside.
const MOST_ROUNDS: u32 = 10_000_000;
const MOST_SCRYPT_MEMORY: u64 = 64 << 20;
const MOST_SCRYPT_LANES: u16 = 16;

const NEEDS_PASSPHRASE: &str =
    "the private key is protected by a passphrase: set JFS_RSA_PASSPHRASE to it";
const WRONG_PASSPHRASE: &str = "the passphrase of the private key is wrong";

/// Reads a key. A passphrase for a key that needs none is not looked at.
pub fn parse(text: &Secret, passphrase: &Secret) -> Result<RsaPrivateKey, String> {
    if text.expose().len() > LONGEST {
        return Err(format!("the private key is longer than {LONGEST} bytes"));
    }
    // What is wrong with the text is not said: it could show some of it.
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
            // Padding that fits by chance: one wrong passphrase in 256.
            decode(&plain).map_err(|_| WRONG_PASSPHRASE.to_owned())
        }
        None => decode(pem.contents()),
    }
}

fn decode(der: &[u8]) -> Result<RsaPrivateKey, String> {
    let key = RsaPrivateKey::from_pkcs1_der(der)
        .or_else(|_| RsaPrivateKey::from_pkcs8_der(der))
        .map_err(|_| "the private key is no RSA key".to_owned())?;
    if key.size() * 8 > LARGEST || key.primes().len() != 2 {
        return Err(format!("the private key has more than {LARGEST} bits or than two primes"));
    }
    key.validate().map_err(|error| format!("the private key is not valid: {error}"))?;
    Ok(key)
}

/// Refuses a key whose protection takes hours or all memory to open.
fn check_cost(scheme: &EncryptionScheme<'_>) -> Result<(), String> {
    let Some(parameters) = scheme.pbes2() else { return Ok(()) };
    let is_cheap = match &parameters.kdf {
        Kdf::Pbkdf2(kdf) => kdf.iteration_count <= MOST_ROUNDS,
        Kdf::Scrypt(kdf) => {
            let memory = kdf.cost_parameter.saturating_mul(128 * u64::from(kdf.block_size));
            memory <= MOST_SCRYPT_MEMORY && kdf.parallelization <= MOST_SCRYPT_LANES
        }
        _ => false,
    };
    is_cheap.then_some(()).ok_or_else(|| "the private key is too expensive to open".to_owned())
}

/// Whether it is the way of protection, and not the passphrase, that failed.
fn is_foreign(cause: &pkcs8::pkcs5::Error) -> bool {
    use pkcs8::pkcs5::Error;
    matches!(
        cause,
        Error::NoPbes1CryptSupport
            | Error::UnsupportedAlgorithm { .. }
            | Error::AlgorithmParametersInvalid { .. }
    )
}

/// The old way of OpenSSL: `DEK-Info: AES-256-CBC,<hex of the initial vector>`.
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

/// A key from a passphrase: MD5 over and over, as OpenSSL did.
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
