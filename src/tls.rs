//! TLS for clients of Redis, TiKV, S3 and the Kubernetes API: which servers to trust, and which
//! certificate to present.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{Error, Result};
use crate::policy::Policy;

/// The TLS files and options of an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate authorities to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// The client's certificate chain; `key` is its private key.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Encrypts without verifying who the server is.
    pub skip_verify: bool,
}

/// The names of the options with the files, for error messages.
#[derive(Debug, Clone, Copy)]
pub struct OptionNames {
    pub ca: &'static str,
    pub cert: &'static str,
    pub key: &'static str,
}

impl TlsFiles {
    /// Reads the files. An error names the option and the file that is wrong.
    pub fn config(&self, names: OptionNames, policy: &Policy) -> Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(Error::bad_input)?;
        let builder = if self.skip_verify {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyServerVerifier(provider)))
        } else {
            let roots = match &self.ca {
                Some(path) => authorities_from(names.ca, path, policy)?,
                None => system_authorities(),
            };
            builder.with_root_certificates(roots)
        };
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates(names.cert, cert, policy)?;
                let pem = policy.read_file(names.key, key)?;
                let secret = PrivateKeyDer::from_pem_slice(&pem)
                    .map_err(|error| bad(names.key, key, error))?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|error| bad(names.cert, cert, error))
            }
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(_), None) => {
                Err(Error::bad_input(format!("{} without {}", names.cert, names.key)))
            }
            (None, Some(_)) => {
                Err(Error::bad_input(format!("{} without {}", names.key, names.cert)))
            }
        }
    }
}

fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn authorities_from(option: &str, path: &Path, policy: &Policy) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(option, path, policy)? {
        roots.add(certificate).map_err(|error| bad(option, path, error))?;
    }
    Ok(roots)
}

fn certificates(
    option: &str,
    path: &Path,
    policy: &Policy,
) -> Result<Vec<CertificateDer<'static>>> {
    let pem = policy.read_file(option, path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.map_err(|error| bad(option, path, error))?;
    if chain.is_empty() {
        return Err(bad(option, path, "the file contains no certificate"));
    }
    Ok(chain)
}

fn bad(option: &str, path: &Path, cause: impl fmt::Display) -> Error {
    Error::bad_input(format!("{option} {}: {cause}", path.display()))
}

/// Verifies signatures, but accepts the certificate of any server.
#[derive(Debug)]
struct AnyServerVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServerVerifier {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
