//! Objects of the real Go client are read here, and ours are read there.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use jfs::object::{Encryption, GetRequest, Spec, open};
use jfs::secret::Secret;

use crate::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use crate::stores::{KEY, encryption};
use crate::support::juicefs::{Volume, command, juicefs};
use crate::support::timeout::{MOUNTED, within};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/object/wrappers/encrypt/golden");

fn file_spec(bucket: &Path, name: &str) -> Spec {
    let prefix = format!("{name}/");
    Spec { prefix, sync: false, ..Spec::new("file", &format!("{}/", bucket.display())) }
}

fn url(dir: &Path) -> String {
    format!("sqlite3://{}", dir.join("meta.db").display())
}

/// Returns the volume's id as `status` shows it.
fn uuid(url: &str) -> String {
    let status: serde_json::Value =
        serde_json::from_str(&juicefs(&["status", url]).ok().stdout).unwrap();
    status["Setting"]["UUID"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_objects_of_the_go_client_are_read_with_every_key_format() {
    for (algo, key) in [
        ("aes256gcm-rsa", "pkcs1.pem"),
        ("chacha20-rsa", "pkcs8.pem"),
        ("aes256gcm-rsa", "pkcs8-locked.pem"),
        ("chacha20-rsa", "legacy-3des.pem"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (url, bucket) = (url(dir.path()), dir.path().join("bucket"));
        let key = format!("{GOLDEN}/{key}");
        let mut format = command(&["format", &url, "volume", "--storage", "file", "--bucket"]);
        format.arg(&bucket).args(["--encrypt-rsa-key", &key, "--encrypt-algo", algo]);
        format.env("JFS_RSA_PASSPHRASE", "sesame");
        assert!(format.output().unwrap().status.success());

        let key = Secret::new(fs::read_to_string(&key).unwrap());
        let passphrase = Secret::new("sesame");
        let encryption = Some(Encryption { algo: algo.to_owned(), key, passphrase });
        let store = open(&Spec { encryption, ..file_spec(&bucket, "volume") }).unwrap();
        assert_eq!(
            store.get("juicefs_uuid", GetRequest::whole()).await.unwrap(),
            uuid(&url),
            "{algo}"
        );
    }
}

#[test]
fn the_go_client_reads_objects_encrypted_here() {
    within(MOUNTED, || {
        for algo in ["aes256gcm-rsa", "chacha20-rsa"] {
            let dir = tempfile::tempdir().unwrap();
            let key = dir.path().join("key.pem");
            fs::write(&key, KEY).unwrap();
            let options = ["--encrypt-algo", algo, "--encrypt-rsa-key", key.to_str().unwrap()];
            let volume = Volume::format(&url(dir.path()), &options);
            let theirs = vec![b'g'; 300_000];
            let ours = vec![b'r'; 300_000];
            let mount = volume.mount(&[]);
            fs::write(mount.path().join("file"), &theirs).unwrap();
            mount.unmount();

            let spec = file_spec(&volume.folder().join("bucket"), "volume");
            let store = open(&Spec { encryption: Some(encryption(algo)), ..spec }).unwrap();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let block = store.list("chunks/", "", 2).await.unwrap().remove(0).key;
                assert!(store.get(&block, GetRequest::whole()).await.unwrap() == theirs);
                store.put(&block, Bytes::from(ours.clone()), 0).await.unwrap();
            });

            let mount = volume.mount(&[]);
            assert!(fs::read(mount.path().join("file")).unwrap() == ours, "{algo}");
            mount.unmount();
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_in_the_same_shard_as_with_the_go_client() {
    let dir = tempfile::tempdir().unwrap();
    let url = url(dir.path());
    let bucket = format!("{}/b%d/", dir.path().display());
    let place = ["--storage", "file", "--bucket", &bucket, "--shards", "7"];
    juicefs(&[&["format", &url, "volume"], &place[..]].concat()).ok();

    let spec = Spec { shards: 7, prefix: "volume/".to_owned(), ..Spec::new("file", &bucket) };
    let store = open(&spec).unwrap();
    assert_eq!(store.get("juicefs_uuid", GetRequest::whole()).await.unwrap(), uuid(&url));
    assert_eq!(store.list("", "", 9).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_requests_match_those_of_the_go_client() {
    let dir = tempfile::tempdir().unwrap();
    let server = S3Server::start();
    let (url, bucket) = (url(dir.path()), server.bucket("bucket"));
    let place = ["--storage", "s3", "--bucket", &bucket, "--storage-class", "REDUCED_REDUNDANCY"];
    let keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY];
    juicefs(&[&["format", &url, "volume"], &place[..], &keys].concat()).ok();
    let put = |seen: Vec<crate::s3::Seen>| {
        let is_put = |one: &crate::s3::Seen| {
            one.method == "PUT" && one.path == "/bucket/volume/juicefs_uuid"
        };
        seen.into_iter().find(is_put).expect("the object must be put")
    };
    let theirs = put(server.seen());

    let class = jfs::object::Tier { class: "REDUCED_REDUNDANCY".to_owned(), tag: String::new() };
    let prefix = "volume/".to_owned();
    let spec = Spec { tiers: [(0, class)].into(), prefix, ..server.spec("bucket") };
    let store = open(&spec).unwrap();
    // Reading it verifies its checksum.
    let body = store.get("juicefs_uuid", GetRequest::whole()).await.unwrap();
    assert_eq!(body, uuid(&url));
    store.put("juicefs_uuid", body, 0).await.unwrap();
    let ours = put(server.seen());
    for name in [
        "content-length",
        "content-type",
        "x-amz-content-sha256",
        "x-amz-meta-crc32c",
        "x-amz-storage-class",
        "x-amz-tagging",
        "content-encoding",
        "transfer-encoding",
        "host",
    ] {
        assert_eq!(ours.header(name), theirs.header(name), "{name}");
    }
}
