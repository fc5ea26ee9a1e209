//! S3 over TLS: server and client certificates as the bucket URL specifies.
//!
//! The certificates beside this file are for 127.0.0.1 and for host names of real stores. Their
//! authorities' keys were thrown away.

use std::sync::Arc;

use bytes::Bytes;
use jfs::object::{Spec, open};
use jfs::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::s3::S3Server;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/object/tls");

pub fn path(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// Returns the configuration of a server with the host names of real stores, and 127.0.0.1.
pub fn named() -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let (chain, key) = identity("names");
    builder.with_single_cert(chain, key).unwrap()
}

fn identity(name: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = vec![CertificateDer::from_pem_file(path(&format!("{name}.pem"))).unwrap()];
    (chain, PrivateKeyDer::from_pem_file(path(&format!("{name}.key"))).unwrap())
}

/// Starts a server that may require a client certificate.
fn server(asks: bool) -> S3Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = if asks {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(path("ca.pem")).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let (chain, key) = identity("server");
    S3Server::start_tls(builder.with_single_cert(chain, key).unwrap())
}

async fn write(server: &S3Server, options: &str) -> Result<()> {
    let mut spec: Spec = server.spec("bucket");
    spec.bucket = format!("{}{options}", server.address("bucket"));
    open(&spec)?.put("a", Bytes::from_static(b"x"), 0).await
}

#[tokio::test]
async fn an_untrusted_server_gets_no_request() {
    let server = server(false);
    let error = write(&server, "").await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn the_address_names_the_trusted_authority() {
    let server = server(false);
    write(&server, &format!("?ca-certs={}", path("ca.pem"))).await.unwrap();
    write(&server, "?tls-insecure-skip-verify=true").await.unwrap();
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn the_address_names_the_client_certificate() {
    let server = server(true);
    let trust = format!("?ca-certs={}", path("ca.pem"));
    write(&server, &trust).await.unwrap_err();
    let (cert, key) = (path("client.pem"), path("client.key"));
    write(&server, &format!("{trust}&ssl-cert={cert}&ssl-key={key}")).await.unwrap();
}

#[tokio::test]
async fn the_error_names_a_bad_file() {
    let server = server(false);
    for (options, why) in [
        ("?ca-certs=/nowhere.pem", "ca-certs /nowhere.pem"),
        ("?ssl-cert=/nowhere.pem", "ssl-cert without ssl-key"),
    ] {
        let error = write(&server, options).await.unwrap_err();
        assert!(matches!(error, Error::BadInput(_)), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
}
