//! What a Secret and a class may name: the controller has a token, and reads the Secrets of all
//! tenants.

use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tonic::Code;

use crate::driver::{Driver, FileSystem, MIB, volume};

/// A server that records what it receives and never responds.
async fn listener() -> (u16, Arc<Mutex<Vec<u8>>>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, received) = (socket.local_addr().unwrap().port(), Arc::default());
    let log: Arc<Mutex<Vec<u8>>> = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = socket.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    log.lock().unwrap().extend_from_slice(&buffer[..count]);
                }
            });
        }
    });
    (port, received)
}

#[tokio::test]
async fn a_secret_cannot_make_the_controller_open_anything_on_its_host() {
    let driver = Driver::start_allowing(&["--allow-loopback"]).await;
    let (port, received) = listener().await;
    let file_system = FileSystem::new();
    let token = file_system.folder.path().join("token");
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
        let mut request = volume(&file_system, "pvc-1", MIB);
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
    assert!(received.lock().unwrap().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_class_can_only_use_options_that_nodes_accept() {
    let (driver, file_system) = (Driver::start().await, FileSystem::new());
    let mut request = volume(&file_system, "pvc-1", MIB);
    request.parameters.insert("mountOptions".to_owned(), "writeback,suid".to_owned());
    let error = driver.create(request.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied, "{error}");
    assert!(error.message().contains("--allow-mount-options=suid"), "{error}");
    let driver = Driver::start_with(&["--allow-mount-options=suid"]).await;
    driver.create(request).await.unwrap();
}

#[tokio::test]
async fn invalid_flags_are_refused_at_the_start() {
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
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains("--allow-"), "{message}");
    }
}
