//! Certificates of this machine, and clients that trust their authority.

use std::fs::Permissions;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::common::PATIENCE;

/// A client's side of a connection under TLS.
pub(crate) type Conversation = StreamOwned<ClientConnection, TcpStream>;

/// PEM files: a certificate of this machine, its key, and the authority that signed it.
pub(crate) struct Certificates {
    dir: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        Self::of(["localhost", "127.0.0.1"])
    }

    /// For a server of these names.
    pub(crate) fn of<const N: usize>(names: [&str; N]) -> Self {
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let authority = params.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.map(str::to_owned).to_vec()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "a server");
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let it = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::write(it.path("certificate.pem"), certificate.pem()).unwrap();
        std::fs::write(it.path("key.pem"), key.serialize_pem()).unwrap();
        std::fs::write(it.path("authority.pem"), authority.pem()).unwrap();
        it.keep_to_ourselves("key.pem");
        it
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// The certificate and its key.
    pub(crate) fn files(&self) -> [String; 2] {
        ["certificate.pem", "key.pem"].map(|name| self.path(name))
    }

    pub(crate) fn keep_to_ourselves(&self, name: &str) {
        std::fs::set_permissions(self.path(name), Permissions::from_mode(0o600)).unwrap();
    }

    /// A conversation at `address` that has not begun yet.
    pub(crate) fn connect(&self, address: SocketAddr) -> Conversation {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.path("authority.pem")).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(session, stream)
    }
}
