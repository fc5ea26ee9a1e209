//! `format` and `config`: a storage is tested before a volume relies on it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use jfs::object::{Encryption, GetRequest, Spec, open};
use jfs::secret::Secret;
use tempfile::TempDir;

use crate::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use crate::support::redis::RedisServer;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/object/wrappers/encrypt/golden");

/// A directory with the metadata and objects of one volume.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        format!("sqlite3://{}", self.0.path().join("meta.db").display())
    }

    fn bucket(&self) -> String {
        format!("{}/bucket/", self.0.path().display())
    }

    fn command(&self, action: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jfs-mount"));
        command.arg(action).arg(self.url()).env("AWS_EC2_METADATA_DISABLED", "true");
        for name in ["JFS_NO_CHECK_OBJECT_STORAGE", "JFS_RSA_PASSPHRASE"] {
            command.env_remove(name);
        }
        command
    }

    fn format(&self, options: &[&str]) -> Output {
        let mut command = self.command("format");
        command.args(["vol", "--bucket", &self.bucket()]).args(options).output().unwrap()
    }

    fn config(&self, options: &[&str]) -> Output {
        self.command("config").args(options).output().unwrap()
    }

    fn spec(&self) -> Spec {
        Spec { prefix: "vol/".to_owned(), ..Spec::new("file", &self.bucket()) }
    }

    fn is_formatted(&self) -> bool {
        self.command("status").output().unwrap().status.success()
    }
}

fn names(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn refused(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_volume_leaves_only_its_uuid_object() {
    let place = Place::new();
    let shown = succeeded(&place.format(&[]));
    assert_eq!(names(place.bucket() + "vol"), ["juicefs_uuid"]);
    let mark = open(&place.spec()).unwrap().get("juicefs_uuid", GetRequest::whole()).await.unwrap();
    assert!(shown.contains(std::str::from_utf8(&mark).unwrap()), "{shown}");
}

#[test]
fn a_bucket_that_is_not_empty_is_refused() {
    let place = Place::new();
    fs::create_dir_all(place.bucket() + "vol/chunks").unwrap();
    fs::write(place.bucket() + "vol/chunks/1_0_5", "block").unwrap();
    let error_message = refused(&place.format(&[]));
    assert!(
        error_message.contains("is not empty") && error_message.contains("chunks/1_0_5"),
        "{error_message}"
    );
    assert_eq!(names(place.bucket() + "vol"), ["chunks"]);
    assert!(!place.is_formatted());
}

#[test]
fn a_storage_that_does_not_work_is_refused_and_nothing_is_written() {
    let place = Place::new();
    fs::write(place.0.path().join("bucket"), "a file in the way").unwrap();
    let error_message = refused(&place.format(&[]));
    assert!(error_message.contains("does not work"), "{error_message}");
    assert!(!place.is_formatted());
}

#[test]
fn the_uuid_object_is_removed_if_the_setting_cannot_be_written() {
    let place = Place::new();
    let redis = RedisServer::start();
    // It answers queries but accepts no writes.
    redis.ask("CONFIG SET maxmemory 1");
    let mut command = Command::new(env!("CARGO_BIN_EXE_jfs-mount"));
    command.args(["format", &redis.url(0), "vol", "--bucket", &place.bucket()]);
    let error_message = refused(&command.output().unwrap());
    assert!(error_message.contains("no space left"), "{error_message}");
    assert!(names(place.bucket() + "vol").is_empty(), "{error_message}");

    redis.ask("CONFIG SET maxmemory 0");
    succeeded(&command.output().unwrap());
    assert_eq!(names(place.bucket() + "vol"), ["juicefs_uuid"]);
}

#[test]
fn an_unchecked_storage_is_not_accessed() {
    let place = Place::new();
    let mut command = place.command("format");
    command.args(["vol", "--bucket", &place.bucket()]);
    succeeded(&command.env("JFS_NO_CHECK_OBJECT_STORAGE", "1").output().unwrap());
    assert!(!Path::new(&place.bucket()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_uuid_object_of_an_encrypted_volume_is_encrypted() {
    let place = Place::new();
    let key = format!("{GOLDEN}/legacy-aes.pem");
    let options = ["--encrypt-rsa-key", &key, "--encrypt-algo", "chacha20-rsa"];
    let error_message = refused(&place.format(&options));
    assert!(error_message.contains("JFS_RSA_PASSPHRASE"), "{error_message}");

    let mut command = place.command("format");
    command.args(["vol", "--bucket", &place.bucket()]).args(options);
    let shown = succeeded(&command.env("JFS_RSA_PASSPHRASE", "sesame").output().unwrap());
    assert!(!shown.contains("sesame"));
    let algo = "chacha20-rsa".to_owned();
    let key = Secret::new(fs::read_to_string(&key).unwrap());
    let encryption = Some(Encryption { algo, key, passphrase: Secret::new("sesame") });
    let store = open(&Spec { encryption, ..place.spec() }).unwrap();
    let mark = store.get("juicefs_uuid", GetRequest::whole()).await.unwrap();
    assert!(shown.contains(std::str::from_utf8(&mark).unwrap()), "{shown}");
}

#[test]
fn an_s3_bucket_is_created_and_its_keys_stay_secret() {
    let place = Place::new();
    let server = S3Server::start();
    let bucket = server.address("fresh");
    let mut command = place.command("format");
    command.args(["vol", "--storage", "s3", "--bucket", &bucket]);
    command.env("ACCESS_KEY", ACCESS_KEY).env("SECRET_KEY", SECRET_KEY);
    let output = command.output().unwrap();
    let shown = succeeded(&output) + &String::from_utf8_lossy(&output.stderr);
    assert!(!shown.contains(SECRET_KEY), "{shown}");
    assert!(server.seen().iter().any(|seen| seen.path == "/fresh/vol/juicefs_uuid"));

    let error_message = refused(&place.config(&["--secret-key", "not the key"]));
    assert!(error_message.contains("SignatureDoesNotMatch"), "{error_message}");
    assert!(!error_message.contains("not the key"), "{error_message}");
}

#[test]
fn a_changed_storage_is_tested_unless_forced_and_left_clean() {
    let place = Place::new();
    succeeded(&place.format(&[]));
    let elsewhere = place.0.path().join("elsewhere");
    let elsewhere = elsewhere.to_str().unwrap();
    succeeded(&place.config(&["--bucket", elsewhere]));
    assert_eq!(names(elsewhere), ["vol"]);
    assert!(names(format!("{elsewhere}/vol")).is_empty());

    let blocked = place.0.path().join("blocked");
    fs::write(&blocked, "a file in the way").unwrap();
    let blocked = blocked.to_str().unwrap();
    let error_message = refused(&place.config(&["--bucket", blocked]));
    assert!(error_message.contains("does not work"), "{error_message}");
    succeeded(&place.config(&["--bucket", blocked, "--force"]));
}
