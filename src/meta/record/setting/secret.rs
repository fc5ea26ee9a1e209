//! The secrets of a setting: plain text in memory, ciphertext in the store.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use super::Setting;
use crate::error::{Error, Result};
pub use crate::secret::Secret;

/// Replaces a secret where it is not shown: in output for users and in dumps.
const REMOVED: &str = "removed";

/// A block encryption algorithm that also changes the cipher of the secrets.
const SM4: &str = "sm4gcm";

impl Setting {
    /// Encrypts the secrets. Does nothing if they are encrypted already or if there are none.
    pub fn encrypt(&mut self) -> Result<()> {
        if self.key_encrypted || self.secrets_mut().iter().all(|(_, secret)| secret.is_empty()) {
            return Ok(());
        }
        let cipher = Cipher::of(self)?;
        self.change_secrets(|_, text| cipher.seal(text))?;
        self.key_encrypted = true;
        Ok(())
    }

    /// Decrypts the secrets. Changes nothing if it fails.
    pub fn decrypt(&mut self) -> Result<()> {
        if !self.key_encrypted {
            return Ok(());
        }
        let cipher = Cipher::of(self)?;
        self.change_secrets(|field, text| cipher.open(field, text))?;
        self.key_encrypted = false;
        Ok(())
    }

    /// Returns a copy for display, in which every secret is `removed`.
    pub fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        for (_, secret) in shown.secrets_mut() {
            if !secret.is_empty() {
                *secret = Secret::new(REMOVED);
            }
        }
        shown
    }

    /// Returns a copy for a JSON dump, without the keys of the object store. The key of the volume's
    /// encryption stays: without it, a loaded volume could not be read.
    pub fn without_store_keys(&self) -> Self {
        let mut dumped = self.clone();
        for secret in [&mut dumped.secret_key, &mut dumped.session_token] {
            if !secret.is_empty() {
                *secret = Secret::new(REMOVED);
            }
        }
        dumped
    }

    /// Returns the stored names of the secrets that a dump has left out.
    pub fn removed_secrets(&self) -> Vec<&'static str> {
        let mut setting = self.clone();
        let secrets = setting.secrets_mut();
        let removed = secrets.iter().filter(|(_, secret)| secret.expose() == REMOVED);
        removed.map(|(name, _)| *name).collect()
    }

    /// Returns the secrets with their stored names.
    fn secrets_mut(&mut self) -> [(&'static str, &mut Secret); 3] {
        [
            ("EncryptKey", &mut self.encrypt_key),
            ("SecretKey", &mut self.secret_key),
            ("SessionToken", &mut self.session_token),
        ]
    }

    /// Replaces every secret that is not empty; none if `change` fails for one of them.
    fn change_secrets(&mut self, change: impl Fn(&str, &str) -> Result<String>) -> Result<()> {
        let mut changed = self.clone();
        for (field, secret) in changed.secrets_mut() {
            if !secret.is_empty() {
                *secret = Secret::new(change(field, secret.expose())?);
            }
        }
        *self = changed;
        Ok(())
    }
}

/// The cipher of a volume's secrets. Its key is derived from the volume's UUID, so it only protects
/// against a glance at the record, not against somebody who has all of it.
struct Cipher(LessSafeKey);

impl Cipher {
    fn of(setting: &Setting) -> Result<Self> {
        if setting.encrypt_algo == SM4 {
            return Err(Error::Refused(format!(
                "volume {} encrypts with {SM4}, which this client does not support",
                setting.name
            )));
        }
        let key = UnboundKey::new(&AES_128_GCM, &Md5::digest(setting.uuid.as_bytes()))
            .map_err(|_| Error::bad_input("no cipher for the secrets of the setting"))?;
        Ok(Self(LessSafeKey::new(key)))
    }

    fn seal(&self, text: &str) -> Result<String> {
        let failed = |_| Error::bad_input("cannot encrypt the secrets of the setting");
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut sealed = text.as_bytes().to_vec();
        let aad = Aad::empty();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(failed)?;
        sealed.splice(0..0, nonce);
        Ok(STANDARD.encode(sealed))
    }

    fn open(&self, field: &str, text: &str) -> Result<String> {
        let damaged = |cause| Error::damaged("setting", format!("{field} {cause}"));
        if text == REMOVED {
            return Err(Error::Refused(format!(
                "{field} was removed from the setting; set it again"
            )));
        }
        let sealed = STANDARD.decode(text).map_err(|_| damaged("is not base64"))?;
        let (nonce, sealed) =
            sealed.split_first_chunk::<NONCE_LEN>().ok_or_else(|| damaged("is too short"))?;
        let mut buffer = sealed.to_vec();
        let plain = self
            .0
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut buffer)
            .map_err(|_| damaged("does not decrypt: encrypted for another UUID, or changed"))?;
        String::from_utf8(plain.to_vec()).map_err(|_| damaged("is not text"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "fb853279-f8fe-462b-a38e-73264b206aaf";

    fn encrypted(secret: &str) -> Setting {
        Setting {
            name: "vol".into(),
            uuid: UUID.into(),
            secret_key: Secret::new(secret),
            key_encrypted: true,
            ..Setting::default()
        }
    }

    #[test]
    fn a_secret_of_the_go_client_decrypts() {
        let mut setting = encrypted("ykYXekKmO638B48oxCTCuX9UxwzXRKW8gE+7dSVyRw==");
        setting.decrypt().unwrap();
        assert_eq!(setting.secret_key.expose(), "abc");
        assert!(!setting.key_encrypted);
    }

    #[test]
    fn a_whole_setting_of_the_go_client_decrypts() {
        let mut setting = Setting::decode(include_bytes!("golden/full.json")).unwrap();
        setting.decrypt().unwrap();
        assert_eq!(setting.secret_key.expose(), "top secret");
        assert_eq!(setting.session_token.expose(), "tok");
        assert!(setting.encrypt_key.expose().starts_with("-----BEGIN PRIVATE KEY-----\n"));
    }

    #[test]
    fn every_failure_names_the_field_and_changes_nothing() {
        for (stored, cause) in [
            ("removed", "SecretKey was removed from the setting; set it again"),
            ("?", "damaged record setting: SecretKey is not base64"),
            ("AAAA", "damaged record setting: SecretKey is too short"),
            (
                "ykYXekKmO638B48oxCTCuX9UxwzXRKW8gE+7dSVyRQ==",
                "damaged record setting: SecretKey does not decrypt: encrypted for another UUID, \
                 or changed",
            ),
        ] {
            let mut setting = encrypted(stored);
            let before = setting.clone();
            assert_eq!(setting.decrypt().unwrap_err().to_string(), cause);
            assert_eq!(setting, before);
        }
    }

    #[test]
    fn a_setting_with_another_cipher_is_refused_with_its_name() {
        let mut setting = Setting { encrypt_algo: SM4.into(), ..encrypted("x") };
        let error = setting.decrypt().unwrap_err();
        assert!(error.to_string().contains("sm4gcm"), "{error}");
        setting.key_encrypted = false;
        assert!(setting.encrypt().is_err());
        setting.secret_key = Secret::default();
        setting.encrypt().unwrap();
    }

    #[test]
    fn a_setting_without_secrets_stays_as_it_is() {
        let mut setting = Setting { uuid: UUID.into(), ..Setting::default() };
        setting.encrypt().unwrap();
        assert!(!setting.key_encrypted);
    }

    #[test]
    fn encrypting_twice_changes_nothing_the_second_time() {
        let mut setting = Setting { key_encrypted: false, ..encrypted("abc") };
        setting.encrypt().unwrap();
        let once = setting.clone();
        setting.encrypt().unwrap();
        assert_eq!(setting, once);
    }

    #[test]
    fn displayed_settings_contain_no_secret() {
        let mut setting = encrypted("sesame");
        setting.key_encrypted = false;
        setting.session_token = Secret::new("sesame");
        setting.encrypt_key = Secret::new("sesame");
        let shown = setting.without_secrets();
        assert!(!format!("{setting:?}").contains("sesame"));
        assert_eq!(shown.secret_key.expose(), "removed");
        assert!(!String::from_utf8(shown.encode().unwrap()).unwrap().contains("sesame"));
        assert_eq!(Setting::default().without_secrets(), Setting::default());
    }

    proptest! {
        #[test]
        fn encrypted_secrets_decrypt(secret: String, token: String, key: String, uuid: String) {
            let plain = Setting {
                uuid,
                secret_key: Secret::new(secret),
                session_token: Secret::new(token),
                encrypt_key: Secret::new(key),
                ..Setting::default()
            };
            let mut setting = plain.clone();
            setting.encrypt().unwrap();
            setting.decrypt().unwrap();
            prop_assert_eq!(setting, plain);
        }
    }
}
