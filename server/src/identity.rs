//! Who is calling: HS256 bearer tokens.
//!
//! The algorithm is pinned: a token that names another one (`none`, or an asymmetric one whose
//! public key would be taken for our secret) is refused before anything in it is believed. Every
//! failure is the same 401: what exactly was wrong with a token helps only who forges them.

use std::time::Duration;

use engine::core::ids::UserId;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::config::Secret;
use crate::time::wall_seconds;

/// Longest token that is looked at: ours have some 250 bytes.
const TOKEN_BYTES_MAX: usize = 4096;

/// Random bytes of a token's id.
const TOKEN_ID_BYTES: usize = 12;

/// Longest token id, so that a revocation fits a control's key.
const TOKEN_ID_BYTES_MAX: usize = 64;

/// What a caller may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Buy, and see what is one's own.
    User,
    /// Everything else as well.
    Admin,
}

/// A caller whose token was verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// The token's subject.
    pub(crate) user: UserId,
    /// The token's role.
    pub(crate) role: Role,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    role: Role,
    exp: u64,
    iat: u64,
    jti: String,
}

/// The token is missing, forged, expired, or not one of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unauthenticated;

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
}

/// The keys and rules by which tokens are signed and verified.
pub(crate) struct Tokens {
    encoding: EncodingKey,
    decoding: DecodingKey,
    validation: Validation,
}

impl Tokens {
    /// Tokens under `secret`.
    ///
    /// # Errors
    /// The library refuses the key.
    pub(crate) fn new(secret: &Secret) -> Result<Self, SignError> {
        let mut validation = Validation::new(Algorithm::HS256);
        // Tokens are made and read by one product; what clock skew there is, is the caller's.
        validation.leeway = 0;
        // A token ends with the second that `exp` names, not after it (RFC 7519, 4.1.4).
        validation.reject_tokens_expiring_in_less_than = 1;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "sub"]);
        Ok(Self {
            encoding: EncodingKey::from_secret(secret.bytes())?,
            decoding: DecodingKey::from_secret(secret.bytes())?,
            validation,
        })
    }

    /// A token for `user` that is good for `ttl` from now.
    ///
    /// # Errors
    /// [`SignError`], where there is no randomness.
    pub(crate) fn sign(
        &self,
        user: UserId,
        role: Role,
        ttl: Duration,
    ) -> Result<String, SignError> {
        let mut id = [0_u8; TOKEN_ID_BYTES];
        getrandom::fill(&mut id).map_err(SignError::Random)?;
        let now = wall_seconds();
        let claims = Claims {
            sub: user.to_string(),
            role,
            exp: now.saturating_add(ttl.as_secs()),
            iat: now,
            jti: id.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        Ok(jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.encoding)?)
    }

    /// The caller that `token` proves.
    ///
    /// # Errors
    /// [`Unauthenticated`], whatever is wrong with it.
    pub(crate) fn verify(&self, token: &str) -> Result<Caller, Unauthenticated> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Unauthenticated);
        }
        let claims = jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation)
            .map_err(|_| Unauthenticated)?
            .claims;
        let decimal =
            !claims.sub.starts_with('0') && claims.sub.bytes().all(|b| b.is_ascii_digit());
        if !decimal || claims.jti.is_empty() || claims.jti.len() > TOKEN_ID_BYTES_MAX {
            return Err(Unauthenticated);
        }
        let user = claims.sub.parse().ok().and_then(UserId::new).ok_or(Unauthenticated)?;
        Ok(Caller { user, role: claims.role })
    }
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
            assert_eq!(tokens.verify(&token), Ok(Caller { user: user(42), role }));
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
