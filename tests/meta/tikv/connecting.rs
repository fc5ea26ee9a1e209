//! A wrong address, servers that are not there, keys that are not good: a clear error, in time.

use jfs::meta::engine::{Engine, connect};
use std::sync::Arc;

use jfs::Error;
use tempfile::TempDir;

use crate::support::tikv::TikvServer;

async fn refusal(url: &str) -> Error {
    match connect(url).await {
        Ok(_) => panic!("{url} opens"),
        Err(error) => error,
    }
}

async fn opened(url: &str) -> Arc<dyn Engine> {
    connect(url).await.expect("PD is there")
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    // Taken and left again: nobody listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("tikv://127.0.0.1:{port}/x");
    let error = refusal(&url).await;
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
    assert_eq!(opened(&url).await.load_setting().await.expect("a read"), None);
}

/// PD knows stores that do not answer.
#[tokio::test]
async fn pd_without_tikv_is_an_error_in_time() {
    let server = TikvServer::start(&["-deaf"]);
    let error = opened(&server.fresh_url()).await.load_setting().await.expect_err("no store");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn files_for_tls_that_are_no_good_are_named() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("ca"), "no PEM").expect("a file");
    let url = |ca: &str| {
        format!("tikv://127.0.0.1:1/x?ca={}&cert={}&key={}", file(ca), file("c"), file("k"))
    };
    let missing = refusal(&url("missing")).await.to_string();
    assert!(missing.contains("ca ") && missing.contains("missing"), "{missing}");
    let damaged = refusal(&url("ca")).await.to_string();
    assert!(damaged.contains("not a PEM file"), "{damaged}");
}

/// Something listens there and never says a word.
#[tokio::test]
async fn a_server_that_says_nothing_is_an_error_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tikv://{}/x", silent.local_addr().unwrap());
    let error = refusal(&url).await;
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("does not answer as a PD server"), "{error}");
}

#[tokio::test]
async fn a_name_that_nobody_has_is_named() {
    let error = refusal("tikv://no-such-host.invalid:2379/x").await.to_string();
    assert!(error.contains("no-such-host.invalid:2379: "), "{error}");
}
