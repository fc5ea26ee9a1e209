//! TLS: whom to trust, and who we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{Error, Result};

/// What the address of a bucket says about TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    pub skip_verify: bool,
    /// Authorities to trust in place of the system's.
    pub ca: Option<PathBuf>,
    /// Who we are: a certificate and its key.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl Trust {
    /// Reads the files; the error names the one that is wrong.
    pub fn config(&self) -> Result<ClientConfig> {
        self.build().map_err(Error::BadInput)
    }

    fn build(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if self.skip_verify {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAnyone(provider)))
        } else {
            builder.with_root_certificates(roots(self.ca.as_deref())?)
        };
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates("ssl-cert", cert)?;
                let secret = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| format!("ssl-key {}: {error}", key.display()))?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|error| format!("ssl-cert {}: {error}", cert.display()))
            }
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(_), None) => Err("ssl-cert without ssl-key".to_owned()),
            (None, Some(_)) => Err("ssl-key without ssl-cert".to_owned()),
        }
    }
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        for certificate in certificates("ca-certs", path)? {
            roots
                .add(certificate)
                .map_err(|error| format!("ca-certs {}: {error}", path.display()))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    Ok(roots)
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fail = |error: String| format!("{option} {}: {error}", path.display());
    let chain = CertificateDer::pem_file_iter(path)
        .map_err(|error| fail(error.to_string()))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| fail(error.to_string()))?;
    if chain.is_empty() {
        return Err(fail("holds no certificate".to_owned()));
    }
    Ok(chain)
}

/// What `tls-insecure-skip-verify` asks for: encryption without knowing with whom.
#[derive(Debug)]
struct TrustAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
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
