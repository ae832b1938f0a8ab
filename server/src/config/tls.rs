//! TLS on our ports: where their certificates and keys come from.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{ConfigError, Http, Resp};

/// The keys of the two files that a port needs.
struct Keys {
    certificate: &'static str,
    private: &'static str,
}

const RESP: Keys = Keys { certificate: "resp.tls_certificate_file", private: "resp.tls_key_file" };
const HTTP: Keys = Keys { certificate: "http.tls_certificate_file", private: "http.tls_key_file" };

/// What is spoken under TLS on the HTTP port, as clients that know more ask for it.
const HTTP_1: &[u8] = b"http/1.1";

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
    let Resp { tls_certificate_file, tls_key_file, .. } = settings;
    let config = port(&RESP, tls_certificate_file.as_deref(), tls_key_file.as_deref())?;
    Ok(config.map(Arc::new))
}

/// How the HTTP port encrypts; `None` where it does not.
///
/// # Errors
/// As [`resp_tls`].
pub(crate) fn http_tls(settings: &Http) -> Result<Option<Arc<ServerConfig>>, ConfigError> {
    let Http { tls_certificate_file, tls_key_file, .. } = settings;
    let config = port(&HTTP, tls_certificate_file.as_deref(), tls_key_file.as_deref())?;
    Ok(config.map(|mut config| {
        config.alpn_protocols = vec![HTTP_1.to_vec()];
        Arc::new(config)
    }))
}

fn port(
    keys: &Keys,
    certificate: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<ServerConfig>, ConfigError> {
    let half = |missing| ConfigError::TlsHalf {
        missing,
        certificate: keys.certificate,
        key: keys.private,
    };
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(half(keys.private)),
        (None, Some(_)) => return Err(half(keys.certificate)),
    };
    let fault = |key, path: &Path| {
        let path = path.to_owned();
        move |what| ConfigError::Tls { key, path, what }
    };
    let text = read("read a certificate from", certificate)?;
    let chain = chain(&text).map_err(fault(keys.certificate, certificate))?;
    let text = read("read a key from", key)?;
    let private = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| fault(keys.private, key)(error.into()))?;
    let refused = |error: rustls::Error| fault(keys.private, key)(error.into());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(refused)?;
    Ok(Some(config))
}

fn read(op: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    fs::read(path).map_err(|source| ConfigError::File { op, path: path.to_owned(), source })
}

fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let chain = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>()?;
    if chain.is_empty() { Err(TlsFault::NoCertificate) } else { Ok(chain) }
}
