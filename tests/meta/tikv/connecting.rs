//! Wrong addresses, unreachable servers and invalid TLS files are reported clearly and in time.

use jfs::meta::engine::{Engine, connect};
use std::sync::Arc;

use jfs::Error;
use tempfile::TempDir;

use crate::support::tikv::TikvServer;

async fn connect_error(url: &str) -> Error {
    match connect(url).await {
        Ok(_) => panic!("{url} connects"),
        Err(error) => error,
    }
}

async fn connected(url: &str) -> Arc<dyn Engine> {
    connect(url).await.expect("connects")
}

#[tokio::test]
async fn an_unreachable_server_is_reported_with_its_address() {
    // A port that was just released: nothing listens on it.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("tikv://127.0.0.1:{port}/x");
    let error = connect_error(&url).await;
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&url), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn one_of_several_servers_is_enough() {
    let server = TikvServer::shared();
    let url = server.fresh_url();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = url.replacen("tikv://", &format!("tikv://127.0.0.1:{port},"), 1);
    assert_eq!(connected(&url).await.load_setting().await.expect("a read"), None);
}

/// PD returns stores that do not respond.
#[tokio::test]
async fn an_unresponsive_store_is_an_error_in_time() {
    let server = TikvServer::start(&["-deaf"]);
    let error = connected(&server.fresh_url()).await.load_setting().await.expect_err("no store");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn invalid_tls_files_are_reported() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("ca"), "no PEM").expect("a file");
    let url = |ca: &str| {
        format!("tikv://127.0.0.1:1/x?ca={}&cert={}&key={}", file(ca), file("c"), file("k"))
    };
    let missing = connect_error(&url("missing")).await.to_string();
    assert!(missing.contains("ca ") && missing.contains("missing"), "{missing}");
    let damaged = connect_error(&url("ca")).await.to_string();
    assert!(damaged.contains("not a PEM file"), "{damaged}");
}

/// A process listens on the port and never responds.
#[tokio::test]
async fn a_silent_server_is_an_error_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tikv://{}/x", silent.local_addr().unwrap());
    let error = connect_error(&url).await;
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("does not respond like a PD server"), "{error}");
}

#[tokio::test]
async fn an_unknown_host_is_reported() {
    let error = connect_error("tikv://no-such-host.invalid:2379/x").await.to_string();
    assert!(error.contains("no-such-host.invalid:2379: "), "{error}");
}
