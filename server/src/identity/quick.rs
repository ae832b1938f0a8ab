//! The tokens that nearly everybody shows: HS256, with the header that this server writes itself.
//!
//! In a rush every purchase brings another token, and the library, which must be ready for any,
//! reads its header, makes a key and reads its claims twice: half of what a purchase costs. Here
//! the header is compared and the key is ready. This way only says yes, to what the library would
//! say yes to; for anything else, whatever it is, the library is asked.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, Header};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::Role;
use super::tokens::Claims;

/// Bytes of claims in base64 that are looked at here: ours have some 160.
const CLAIMS_TEXT_MAX: usize = 512;

/// Bytes of an HS256 signature in base64.
const SIGNATURE_TEXT: usize = 43;

/// A key that is ready.
pub(super) struct Quick {
    /// What its tokens begin with.
    header: String,
    key: hmac::Key,
}

/// The claims, and others that the library judges by rules of its own.
#[derive(Deserialize)]
struct Judged {
    sub: String,
    role: Role,
    exp: u64,
    iat: u64,
    jti: String,
    #[serde(default)]
    nbf: Seen,
    #[serde(default)]
    aud: Seen,
}

/// Whether a claim is there, whatever it says.
#[derive(Default)]
struct Seen(bool);

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(true))
    }
}

impl Quick {
    /// The key `secret`, named `kid`.
    pub(super) fn new(secret: &[u8], kid: Option<String>) -> Option<Self> {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = kid;
        let header = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&header).ok()?) + ".";
        Some(Self { header, key: hmac::Key::new(hmac::HMAC_SHA256, secret) })
    }

    /// The claims of `token`, where it is one of ours and good at `now`, in Unix seconds.
    pub(super) fn claims(&self, token: &str, now: u64) -> Option<Claims> {
        let (message, signature) = token.rsplit_once('.')?;
        let payload = message.strip_prefix(self.header.as_str())?;
        if signature.len() != SIGNATURE_TEXT || payload.len() > CLAIMS_TEXT_MAX {
            return None;
        }
        let mut digest = [0; SIGNATURE_TEXT];
        let length = URL_SAFE_NO_PAD.decode_slice(signature, &mut digest).ok()?;
        hmac::verify(&self.key, message.as_bytes(), &digest[..length]).ok()?;
        let mut bytes = [0; CLAIMS_TEXT_MAX];
        let length = URL_SAFE_NO_PAD.decode_slice(payload, &mut bytes).ok()?;
        // A field that stands there twice is refused, as the library refuses it.
        let judged: Judged = serde_json::from_slice(&bytes[..length]).ok()?;
        let Judged { sub, role, exp, iat, jti, nbf, aud } = judged;
        // A token ends with the second that `exp` names.
        (now < exp && !nbf.0 && !aud.0).then_some(Claims { sub, role, exp, iat, jti })
    }
}
