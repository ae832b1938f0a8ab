//! A client's side of TLS, towards a server that an authority of the operator's vouches for.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Why a server is not trusted. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    /// No authority is named.
    #[error("https:// needs --ca FILE: the authority that vouches for the server, as PEM")]
    Nobody,
    /// The authority's file can't be used.
    #[error("--ca {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The authority's file holds something else.
    #[error("--ca {}: there is no certificate in it", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// No certificate could have such a name.
    #[error("{name:?} is no name that a certificate has: {source}")]
    Name {
        /// The host.
        name: String,
        /// What is wrong with it.
        source: InvalidDnsNameError,
    },
    /// TLS does not take it.
    #[error("TLS: {0}")]
    Refused(#[from] rustls::Error),
}

/// Begins TLS on `socket` with the host of `authority`, which `ca` must vouch for.
///
/// # Errors
/// [`TrustError`]. A server that nobody vouches for is found out when it first answers.
pub(super) fn begin(
    socket: TcpStream,
    authority: &str,
    ca: Option<&Path>,
) -> Result<StreamOwned<ClientConnection, TcpStream>, TrustError> {
    let path = ca.ok_or(TrustError::Nobody)?;
    let fault = |source| TrustError::File { path: path.to_owned(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(fault)? {
        roots.add(certificate.map_err(fault)?)?;
    }
    if roots.is_empty() {
        return Err(TrustError::Empty { path: path.to_owned() });
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host.clone());
    let name = name.map_err(|source| TrustError::Name { name: host, source })?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, socket))
}
