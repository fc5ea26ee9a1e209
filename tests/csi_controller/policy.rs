//! What a Secret and a class may name: the controller holds a token, and reads Secrets of everybody.

use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tonic::Code;

use crate::driver::{Driver, MIB, Place, volume};

/// A server that writes down what it is told and answers nothing.
async fn listener() -> (u16, Arc<Mutex<Vec<u8>>>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, heard) = (socket.local_addr().unwrap().port(), Arc::default());
    let noted: Arc<Mutex<Vec<u8>>> = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = socket.accept().await {
            let noted = Arc::clone(&noted);
            tokio::spawn(async move {
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut piece).await {
                    noted.lock().unwrap().extend_from_slice(&piece[..count]);
                }
            });
        }
    });
    (port, heard)
}

#[tokio::test]
async fn a_secret_opens_nothing_of_the_controllers_host() {
    let driver = Driver::start_allowing(&["--allow-loopback"]).await;
    let (port, heard) = listener().await;
    let place = Place::new();
    let token = place.folder.path().join("token");
    std::fs::write(&token, "canary").unwrap();
    let (token, url) = (token.display(), format!("redis://127.0.0.1:{port}/1"));
    let s3 = [("storage", "s3".to_owned()), ("bucket", format!("http://127.0.0.1:{port}/b"))];
    let metaurl = |url: String| ("metaurl", url);
    for (more, words) in [
        (vec![], ["storage: file", "--allow-local-storage"]),
        (
            vec![("envs", format!("{{META_PASSWORD_FILE: {token}}}"))],
            ["META_PASSWORD_FILE", "--allow-files-below"],
        ),
        (
            vec![("format-options", format!("kerberos-config-file={token}"))],
            ["kerberos-config-file", "--allow-files-below"],
        ),
        (
            vec![("envs", "{JFS_INSTANCE_CREDENTIALS: 'true'}".to_owned())],
            ["JFS_INSTANCE_CREDENTIALS", "--allow-instance-credentials"],
        ),
        (
            vec![metaurl(format!("rediss://127.0.0.1:{port}/1?tls-ca-cert-file={token}"))],
            ["tls-ca-cert-file", "--allow-files-below"],
        ),
        (vec![metaurl(format!("sqlite3://{token}"))], ["sqlite3", "--allow-local-storage"]),
        (vec![metaurl("redis://169.254.169.254/1".to_owned())], ["169.254", "--allow-link-local"]),
    ] {
        let mut request = volume(&place, "pvc-1", MIB);
        if !more.is_empty() {
            request.secrets.insert("metaurl".to_owned(), url.clone());
            for (key, value) in s3.iter().chain(&more) {
                request.secrets.insert((*key).to_owned(), value.clone());
            }
        }
        let error = driver.create(request).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{words:?}: {error}");
        assert!(words.iter().all(|word| error.message().contains(word)), "{words:?}: {error}");
    }
    assert!(heard.lock().unwrap().is_empty(), "nobody was asked anything");
}

#[tokio::test]
async fn a_class_gives_only_options_that_nodes_take() {
    let (driver, place) = (Driver::start().await, Place::new());
    let mut request = volume(&place, "pvc-1", MIB);
    request.parameters.insert("mountOptions".to_owned(), "writeback,suid".to_owned());
    let error = driver.create(request.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied, "{error}");
    assert!(error.message().contains("--allow-mount-options=suid"), "{error}");
    let driver = Driver::start_with(&["--allow-mount-options=suid"]).await;
    driver.create(request).await.unwrap();
}

#[tokio::test]
async fn what_a_flag_names_is_checked_at_the_start() {
    for flags in [
        ["--allow-files-below=relative"],
        ["--allow-local-storage=/a/../b"],
        ["--allow-mount-options=storage"],
        ["--allow-inline-options=colour"],
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_jfs-csi"))
            .args(["--mode=controller", "--http=127.0.0.1:0", "--endpoint=unix:///tmp/never"])
            .args(flags)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains("--allow-"), "{told}");
    }
}
