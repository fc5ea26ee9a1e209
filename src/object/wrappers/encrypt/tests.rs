use super::*;
use crate::object::GetRequest;
use crate::object::mem::MemStore;
use crate::secret::Secret;

const PKCS1: &str = include_str!("golden/pkcs1.pem");
const PKCS8: &str = include_str!("golden/pkcs8.pem");
const PROTECTED: [&str; 4] = [
    include_str!("golden/pkcs8-locked.pem"),
    include_str!("golden/pkcs8-locked-3des.pem"),
    include_str!("golden/legacy-aes.pem"),
    include_str!("golden/legacy-3des.pem"),
];
const PASSPHRASE: &str = "sesame";

fn encryption(algo: &str, key: &str, passphrase: &str) -> Encryption {
    let (key, passphrase) = (Secret::new(key), Secret::new(passphrase));
    Encryption { algo: algo.to_owned(), key, passphrase }
}

fn encrypted(bucket: &Arc<MemStore>, algo: &str) -> Encrypted {
    Encrypted::new(bucket.clone(), &encryption(algo, PKCS1, "")).unwrap()
}

fn refusal(encryption: &Encryption) -> String {
    let Err(error) = Encrypted::new(Arc::new(MemStore::default()), encryption) else {
        panic!("{encryption:?} was accepted")
    };
    error.to_string()
}

#[tokio::test]
async fn objects_of_the_go_client_decrypt() {
    for (algo, stored, uuid) in [
        (
            "aes256gcm-rsa",
            include_bytes!("golden/aes256gcm-rsa.bin"),
            "1e5c3756-622e-4f70-a233-20213c199155",
        ),
        (
            "chacha20-rsa",
            include_bytes!("golden/chacha20-rsa.bin"),
            "3b2801f6-f764-47ce-a854-dc3064f42885",
        ),
    ] {
        let bucket = Arc::new(MemStore::default());
        bucket.put("juicefs_uuid", Bytes::from_static(stored), 0).await.unwrap();
        let store = encrypted(&bucket, algo);
        assert_eq!(store.get("juicefs_uuid", GetRequest::whole()).await.unwrap(), uuid);
        assert_eq!(store.get("juicefs_uuid", GetRequest::range(1..3)).await.unwrap(), uuid[1..3]);
    }
}

#[tokio::test]
async fn stored_objects_are_encrypted_differently_each_time() {
    let bucket = Arc::new(MemStore::default());
    let store = encrypted(&bucket, "");
    let body = Bytes::from_static(b"plain text that must not show");
    store.put("a", body.clone(), 0).await.unwrap();
    store.put("b", body.clone(), 0).await.unwrap();
    let (a, b) = (
        bucket.get("a", GetRequest::whole()).await.unwrap(),
        bucket.get("b", GetRequest::whole()).await.unwrap(),
    );
    assert_ne!(a, b);
    assert_eq!(a.len(), 3 + 256 + 12 + body.len() + 16);
    assert!(!a.windows(5).any(|five| five == b"plain"));
    assert_eq!(store.get("a", GetRequest::whole()).await.unwrap(), body);
    assert!(!store.has_cheap_ranges());
}

#[tokio::test]
async fn damage_anywhere_in_an_object_is_an_error() {
    let bucket = Arc::new(MemStore::default());
    let store = encrypted(&bucket, "chacha20-rsa");
    store.put("a", Bytes::from_static(b"body"), 0).await.unwrap();
    let good = bucket.get("a", GetRequest::whole()).await.unwrap();
    for at in [0, 1, 2, 3, 100, 3 + 256, 3 + 256 + 12, good.len() - 1] {
        let mut bad = good.to_vec();
        bad[at] ^= 0x40;
        bucket.put("a", bad.into(), 0).await.unwrap();
        let error = store.get("a", GetRequest::whole()).await.unwrap_err();
        assert!(matches!(error, Error::Storage { .. }), "byte {at}: {error}");
    }
    for length in [0, 2, 3, 200, good.len() - 1] {
        bucket.put("a", good.slice(..length), 0).await.unwrap();
        store.get("a", GetRequest::whole()).await.unwrap_err();
    }
}

#[test]
fn keys_are_parsed_in_every_format() {
    for key in [PKCS1, PKCS8] {
        Cipher::new(&encryption("", key, "")).unwrap();
        Cipher::new(&encryption("", key, "not needed")).unwrap();
    }
    let plain = Cipher::new(&encryption("", PKCS1, "")).unwrap();
    for key in PROTECTED {
        let cipher = Cipher::new(&encryption("", key, PASSPHRASE)).unwrap();
        assert_eq!(cipher.key, plain.key);
    }
}

#[test]
fn a_missing_or_wrong_passphrase_is_reported() {
    for key in PROTECTED {
        assert!(refusal(&encryption("", key, "")).contains("set JFS_RSA_PASSPHRASE"));
        let wrong = refusal(&encryption("", key, "open"));
        assert!(wrong.contains("passphrase of the private key is wrong"), "{wrong}");
    }
}

#[test]
fn an_unusable_key_or_algorithm_is_reported_without_showing_the_key() {
    for (algo, key, why) in [
        ("sm4gcm", PKCS1, "\"sm4gcm\" is not supported"),
        ("", "sesame", "not PEM"),
        ("", "-----BEGIN PRIVATE KEY-----\nc2VzYW1l\n-----END PRIVATE KEY-----\n", "no RSA key"),
    ] {
        let refusal = refusal(&encryption(algo, key, ""));
        assert!(refusal.contains(why), "{refusal}");
        assert!(!refusal.contains("sesame"), "{refusal}");
    }
}

#[tokio::test]
async fn another_key_is_reported() {
    let bucket = Arc::new(MemStore::default());
    encrypted(&bucket, "").put("a", Bytes::from_static(b"body"), 0).await.unwrap();
    let error = encrypted(&bucket, "chacha20-rsa").get("a", GetRequest::whole()).await.unwrap_err();
    assert!(error.to_string().contains("encrypted in another way"), "{error}");
}

/// Returns a key in PEM format whose protection needs that many rounds of PBKDF2.
fn expensive(rounds: u32) -> String {
    let (salt, iv) = ([1; 8], [2; 16]);
    let most = pkcs8::pkcs5::pbes2::Parameters::pbkdf2_sha256_aes256cbc(99_999_999, &salt, &iv);
    let info = pkcs8::EncryptedPrivateKeyInfo {
        encryption_algorithm: most.unwrap().into(),
        encrypted_data: &[3; 64],
    };
    let mut der = pkcs8::der::Encode::to_der(&info).unwrap();
    let marker = 99_999_999_u32.to_be_bytes();
    let at = der.windows(4).position(|four| four == marker).unwrap();
    der[at..at + 4].copy_from_slice(&rounds.to_be_bytes());
    pem::encode(&pem::Pem::new("ENCRYPTED PRIVATE KEY", der))
}

#[test]
fn a_key_that_takes_hours_to_decrypt_is_refused_at_once() {
    for rounds in [99_999_999, 0x7fff_ffff] {
        let told = refusal(&encryption("", &expensive(rounds), PASSPHRASE));
        assert!(told.contains("too expensive"), "{told}");
    }
    let told = refusal(&encryption("", &"x".repeat(1 << 20), ""));
    assert!(told.contains("longer than"), "{told}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_stands_in_place_of_a_key_is_refused_without_being_shown(
        which in 0_usize..6,
        at in 0_usize..1500,
        with in "[ -~\n]{0,40}",
        cut in 0_usize..1800,
    ) {
        let all = [PKCS1, PKCS8, PROTECTED[0], PROTECTED[1], PROTECTED[2], PROTECTED[3]];
        let mut text = all[which].to_owned();
        text.replace_range(at.min(text.len())..(at + 1).min(text.len()), &format!("{with}canary"));
        text.truncate(cut.max(at + 50));
        let bucket = Arc::new(MemStore::default());
        if let Err(error) = Encrypted::new(bucket, &encryption("", &text, PASSPHRASE)) {
            proptest::prop_assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
