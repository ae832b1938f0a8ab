//! TLS on the Redis port: where its certificate and key come from.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{ConfigError, Resp};

const CERTIFICATE: &str = "resp.tls_certificate_file";
const KEY: &str = "resp.tls_key_file";

/// What is wrong with a file that TLS needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TlsFault {
    /// It is not PEM, or holds something else.
    #[error("no PEM of what is needed: {0}")]
    Pem(#[from] pem::Error),
    /// It is empty, as far as TLS is concerned.
    #[error("there is no certificate in it")]
    NoCertificate,
    /// TLS does not take it.
    #[error("can't be used: {0}")]
    Refused(#[from] rustls::Error),
}

/// How the Redis port encrypts; `None` where it does not.
///
/// # Errors
/// One of the two files is missing, or they are no certificate with its key.
pub(crate) fn resp_tls(settings: &Resp) -> Result<Option<Arc<ServerConfig>>, ConfigError> {
    let (certificate, key) = match (&settings.tls_certificate_file, &settings.tls_key_file) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(ConfigError::TlsHalf { missing: KEY }),
        (None, Some(_)) => return Err(ConfigError::TlsHalf { missing: CERTIFICATE }),
    };
    let fault = |key, path: &Path| {
        let path = path.to_owned();
        move |what| ConfigError::Tls { key, path, what }
    };
    let text = read("read a certificate from", certificate)?;
    let chain = chain(&text).map_err(fault(CERTIFICATE, certificate))?;
    let text = read("read a key from", key)?;
    let private =
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| fault(KEY, key)(error.into()))?;
    let refused = |error: rustls::Error| fault(KEY, key)(error.into());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(refused)?;
    Ok(Some(Arc::new(config)))
}

fn read(op: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    fs::read(path).map_err(|source| ConfigError::File { op, path: path.to_owned(), source })
}

fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let chain = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>()?;
    if chain.is_empty() { Err(TlsFault::NoCertificate) } else { Ok(chain) }
}
