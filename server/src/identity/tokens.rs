//! Bearer tokens: JSON Web Tokens, each key pinned to one algorithm.
//!
//! A token names its key (`kid`) and the key alone says which algorithm counts. So a token that
//! names another one (`none`, or HS256 with our public key for a secret) is refused before
//! anything in it is believed. Every failure is the same 401: what exactly was wrong with a token
//! helps only who forges them.

use std::time::Duration;

use engine::core::ids::UserId;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use super::quick::Quick;
use super::{Caller, Role, Unauthenticated};
use crate::config::Secret;
use crate::time::wall_seconds;

/// Longest token that is looked at: ours have some 250 bytes, RS256 ones 600.
const TOKEN_BYTES_MAX: usize = 4096;

/// Random bytes of a token's id.
const TOKEN_ID_BYTES: usize = 12;

/// Longest token id, so that a revocation fits a control's key.
const TOKEN_ID_BYTES_MAX: usize = 64;

#[derive(Serialize, Deserialize)]
pub(super) struct Claims {
    pub(super) sub: String,
    pub(super) role: Role,
    pub(super) exp: u64,
    pub(super) iat: u64,
    pub(super) jti: String,
}

/// A token that was verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verified {
    /// Whom it proves.
    pub(crate) caller: Caller,
    /// Its own id, by which it is revoked.
    pub(crate) id: String,
    /// When it ends by itself, Unix seconds.
    pub(crate) expires: u64,
}

/// A token could not be signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SignError {
    /// The operating system has no randomness to give.
    #[error("no randomness for a token's id: {0}")]
    Random(getrandom::Error),
    /// The library refused.
    #[error("the token could not be signed: {0}")]
    Library(#[from] jsonwebtoken::errors::Error),
    /// This server holds public keys alone.
    #[error("tokens are signed elsewhere: this server has no key to sign with")]
    SignedElsewhere,
}

/// What tokens are signed with.
pub(super) struct Signer {
    pub(super) algorithm: Algorithm,
    pub(super) key: EncodingKey,
    /// Named in each token, so that keys can be told apart when they change.
    pub(super) kid: Option<String>,
}

/// One key that tokens may be signed under.
pub(super) struct Key {
    kid: Option<String>,
    decoding: DecodingKey,
    validation: Validation,
    /// The short way, for keys whose tokens can have one.
    quick: Option<Quick>,
}

impl Key {
    /// A key for `algorithm` and no other.
    pub(super) fn new(kid: Option<String>, algorithm: Algorithm, decoding: DecodingKey) -> Self {
        let mut validation = Validation::new(algorithm);
        // What clock skew there is between us and who signs, is theirs.
        validation.leeway = 0;
        // A token ends with the second that `exp` names, not after it (RFC 7519, 4.1.4).
        validation.reject_tokens_expiring_in_less_than = 1;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "sub"]);
        Self { kid, decoding, validation, quick: None }
    }
}

/// The keys and rules by which tokens are signed and verified.
pub(crate) struct Tokens {
    signer: Option<Signer>,
    /// The key of tokens that name none.
    unnamed: Option<usize>,
    /// A handful: those in use, and those that tokens still out there are signed under.
    keys: Vec<Key>,
}

impl Tokens {
    /// Tokens under `secret` alone.
    #[cfg(test)]
    pub(crate) fn new(secret: &Secret) -> Result<Self, SignError> {
        let (signer, key) = symmetric(secret, None)?;
        Ok(Self::of(Some(signer), vec![key], Some(0)))
    }

    /// Tokens signed by `signer`, verified with `keys`; those that name no key with `unnamed`.
    pub(super) fn of(signer: Option<Signer>, keys: Vec<Key>, unnamed: Option<usize>) -> Self {
        Self { signer, unnamed, keys }
    }

    /// A token for `user` that is good for `ttl` from now.
    ///
    /// # Errors
    /// [`SignError`], where there is no randomness or no key.
    pub(crate) fn sign(
        &self,
        user: UserId,
        role: Role,
        ttl: Duration,
    ) -> Result<String, SignError> {
        self.sign_until(user, role, wall_seconds().saturating_add(ttl.as_secs()))
    }

    /// A token for `user` that is good until `expires`, in Unix seconds.
    ///
    /// # Errors
    /// [`SignError`], where there is no randomness or no key.
    pub(crate) fn sign_until(
        &self,
        user: UserId,
        role: Role,
        expires: u64,
    ) -> Result<String, SignError> {
        let signer = self.signer.as_ref().ok_or(SignError::SignedElsewhere)?;
        let mut id = [0_u8; TOKEN_ID_BYTES];
        getrandom::fill(&mut id).map_err(SignError::Random)?;
        let claims = Claims {
            sub: user.to_string(),
            role,
            exp: expires,
            iat: wall_seconds(),
            jti: id.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let mut header = Header::new(signer.algorithm);
        header.kid.clone_from(&signer.kid);
        Ok(jsonwebtoken::encode(&header, &claims, &signer.key)?)
    }

    /// Whether tokens can be made here.
    pub(crate) fn can_sign(&self) -> bool {
        self.signer.is_some()
    }

    /// What `token` proves.
    ///
    /// # Errors
    /// [`Unauthenticated`], whatever is wrong with it.
    pub(crate) fn verify(&self, token: &str) -> Result<Verified, Unauthenticated> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Unauthenticated);
        }
        let claims = match self.quick(token) {
            Some(claims) => claims,
            None => self.judge(token)?,
        };
        let decimal =
            !claims.sub.starts_with('0') && claims.sub.bytes().all(|b| b.is_ascii_digit());
        if !decimal || claims.jti.is_empty() || claims.jti.len() > TOKEN_ID_BYTES_MAX {
            return Err(Unauthenticated);
        }
        let user = claims.sub.parse().ok().and_then(UserId::new).ok_or(Unauthenticated)?;
        let caller = Caller { user, role: claims.role };
        Ok(Verified { caller, id: claims.jti, expires: claims.exp })
    }

    /// The claims of a token that needs no judge.
    fn quick(&self, token: &str) -> Option<Claims> {
        let now = wall_seconds();
        let unnamed = |index| self.unnamed == Some(index);
        let mut keys = self.keys.iter().enumerate();
        keys.find_map(|(index, key)| {
            let quick = key.quick.as_ref().filter(|_| key.kid.is_some() || unnamed(index))?;
            quick.claims(token, now)
        })
    }

    /// What the library says of `token`.
    fn judge(&self, token: &str) -> Result<Claims, Unauthenticated> {
        let Key { decoding, validation, .. } = self.key_of(token).ok_or(Unauthenticated)?;
        let judged = jsonwebtoken::decode(token, decoding, validation);
        judged.map(|token| token.claims).map_err(|_| Unauthenticated)
    }

    /// The key that `token` says it is signed under. Nothing is believed yet: a wrong key verifies
    /// nothing.
    fn key_of(&self, token: &str) -> Option<&Key> {
        // With one key there is nothing to choose, and no header to read twice.
        if let ([only], Some(0)) = (self.keys.as_slice(), self.unnamed)
            && only.kid.is_none()
        {
            return Some(only);
        }
        match jsonwebtoken::decode_header(token).ok()?.kid {
            None => self.keys.get(self.unnamed?),
            kid => self.keys.iter().find(|key| key.kid == kid),
        }
    }
}

/// `secret` as the two halves of an HS256 key.
pub(super) fn symmetric(secret: &Secret, kid: Option<String>) -> Result<(Signer, Key), SignError> {
    let key = EncodingKey::from_secret(secret.bytes())?;
    let decoding = DecodingKey::from_secret(secret.bytes())?;
    let signer = Signer { algorithm: Algorithm::HS256, key, kid: kid.clone() };
    let quick = Quick::new(secret.bytes(), kid.clone());
    Ok((signer, Key { quick, ..Key::new(kid, Algorithm::HS256, decoding) }))
}

/// The token of an `Authorization: Bearer ...` header's value; the scheme is case-insensitive.
pub(crate) fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim_start_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &str = "k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE";
    const OTHER: &str = "Z3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE";

    fn tokens(secret: &str) -> Tokens {
        Tokens::new(&serde_json::from_value(Value::from(secret)).unwrap()).unwrap()
    }

    fn user(id: u64) -> UserId {
        UserId::new(id).unwrap()
    }

    fn signed(algorithm: Algorithm, secret: &str, claims: &Value) -> String {
        let key = EncodingKey::from_secret(secret.as_bytes()).unwrap();
        jsonwebtoken::encode(&Header::new(algorithm), claims, &key).unwrap()
    }

    fn claims() -> Value {
        let now = wall_seconds();
        json!({"sub": "7", "role": "user", "exp": now + 600, "iat": now, "jti": "a"})
    }

    #[test]
    fn a_signed_token_proves_its_user_and_role() {
        let tokens = tokens(SECRET);
        for role in [Role::User, Role::Admin] {
            let token = tokens.sign(user(42), role, Duration::from_secs(60)).unwrap();
            assert_eq!(tokens.verify(&token).unwrap().caller, Caller { user: user(42), role });
        }
    }

    #[test]
    fn a_token_of_another_key_is_refused() {
        let token = tokens(OTHER).sign(user(42), Role::User, Duration::from_secs(60)).unwrap();
        assert_eq!(tokens(SECRET).verify(&token), Err(Unauthenticated));
    }

    #[test]
    fn an_expired_token_is_refused_without_leeway() {
        let tokens = tokens(SECRET);
        let mut stale = claims();
        for exp in [wall_seconds() - 1, wall_seconds()] {
            stale["exp"] = json!(exp);
            let token = signed(Algorithm::HS256, SECRET, &stale);
            assert_eq!(tokens.verify(&token), Err(Unauthenticated));
        }
    }

    #[test]
    fn an_algorithm_other_than_ours_is_refused() {
        let tokens = tokens(SECRET);
        assert!(tokens.verify(&signed(Algorithm::HS256, SECRET, &claims())).is_ok());
        let other = signed(Algorithm::HS512, SECRET, &claims());
        assert_eq!(tokens.verify(&other), Err(Unauthenticated));
        // {"alg":"none","typ":"JWT"}, the same claims, no signature.
        let claims = signed(Algorithm::HS256, SECRET, &claims());
        let claims = claims.split('.').nth(1).unwrap();
        let none = format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{claims}.");
        assert_eq!(tokens.verify(&none), Err(Unauthenticated));
    }

    #[test]
    fn a_subject_that_is_no_decimal_user_id_is_refused() {
        let tokens = tokens(SECRET);
        for sub in ["", "0", "-1", "+1", "01", "1.0", "alice", " 1", "9007199254740992", "١"] {
            let mut claims = claims();
            claims["sub"] = json!(sub);
            let token = signed(Algorithm::HS256, SECRET, &claims);
            assert_eq!(tokens.verify(&token), Err(Unauthenticated), "{sub:?}");
        }
    }

    #[test]
    fn a_missing_or_foreign_claim_is_refused() {
        let tokens = tokens(SECRET);
        for name in ["sub", "role", "exp", "iat", "jti"] {
            let mut claims = claims();
            claims.as_object_mut().unwrap().remove(name);
            let token = signed(Algorithm::HS256, SECRET, &claims);
            assert_eq!(tokens.verify(&token), Err(Unauthenticated), "{name}");
        }
        for (name, value) in [
            ("role", json!("root")),
            ("sub", json!(7)),
            ("nbf", json!(wall_seconds() + 600)),
            ("exp", json!("tomorrow")),
            ("jti", json!("x".repeat(65))),
        ] {
            let mut claims = claims();
            claims[name] = value;
            let token = signed(Algorithm::HS256, SECRET, &claims);
            assert_eq!(tokens.verify(&token), Err(Unauthenticated), "{name}");
        }
    }

    /// The short way says yes to what this server signs, and never to what the library refuses.
    #[test]
    fn the_short_way_takes_nothing_that_the_library_refuses() {
        let tokens = tokens(SECRET);
        let own = tokens.sign(user(42), Role::User, Duration::from_secs(60)).unwrap();
        assert!(tokens.quick(&own).is_some_and(|claims| claims.sub == "42"));
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            signed(Algorithm::HS256, SECRET, &claims)
        };
        let now = wall_seconds();
        let mut cases = vec![
            signed(Algorithm::HS256, OTHER, &claims()),
            signed(Algorithm::HS512, SECRET, &claims()),
            with("exp", json!(now)),
            with("exp", json!(now - 1)),
            with("exp", json!(now + 60)),
            with("exp", json!(1e18)),
            with("nbf", json!(now + 60)),
            with("nbf", json!(now - 60)),
            with("aud", json!("shop")),
            with("nbf", json!(null)),
            with("aud", json!(null)),
            with("iss", json!("shop")),
            with("jti", json!(null)),
            format!("{own}="),
            format!("{own}A"),
            format!(" {own}"),
            own.replacen('.', "..", 1),
            own.to_uppercase(),
        ];
        // Every single bit of a token counts.
        for index in 0..own.len() {
            let mut bytes = own.clone().into_bytes();
            bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
            cases.extend(String::from_utf8(bytes));
        }
        for token in cases {
            if let Some(claims) = tokens.quick(&token) {
                let judged = tokens.judge(&token);
                assert!(judged.is_ok_and(|it| it.sub == claims.sub && it.jti == claims.jti));
            }
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in ["", ".", "..", "a.b.c", "\u{0}", &"x".repeat(5000)] {
            assert_eq!(tokens(SECRET).verify(text), Err(Unauthenticated));
        }
    }

    #[test]
    fn the_bearer_scheme_is_read_in_any_case() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc"), Some("abc"));
        for header in ["", "abc", "Bearer", "Bearer ", "Basic abc", "Bearerabc"] {
            assert_eq!(bearer(header), None, "{header}");
        }
    }
}
