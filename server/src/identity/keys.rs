//! The keys of tokens: which files they come from, and how they are rotated.
//!
//! | setting | means |
//! |---|---|
//! | `token.secret`, `token.secret_file` | an HS256 key that signs and verifies |
//! | `token.private_key_file`, `token.algorithm` | sign with this PEM key instead |
//! | `token.kid` | the name that new tokens carry for the key they are signed with |
//! | `token.verify_keys` | further keys that tokens may be signed under, by name |
//!
//! To rotate: add the new key to `token.verify_keys` of every server, then sign with it, then,
//! once the last token under the old key has ended, remove the old one.

use std::path::{Path, PathBuf};

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};

use super::tokens::{Key, SignError, Signer, Tokens, symmetric};
use crate::config::{self, ConfigError, Loaded, Secret};

/// Keys that one server verifies under: a rotation needs two, a few issuers a few more.
const KEYS_MAX: usize = 16;

/// Bytes of a key's name.
const KID_BYTES_MAX: usize = 64;

/// What is wrong with a key. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum KeyError {
    /// Secrets and files.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An entry of `token.verify_keys` is malformed.
    #[error(
        "token.verify_keys: {0:?} must read name=ALGORITHM:path, with an algorithm of HS256, RS256 \
         or EdDSA"
    )]
    Entry(String),
    /// Two keys of one name.
    #[error("token.verify_keys: two keys are named {0:?}")]
    Twice(String),
    /// More keys than can be meant.
    #[error("token.verify_keys: {0} keys, at most {KEYS_MAX} are taken")]
    TooMany(usize),
    /// `token.algorithm` is none of ours.
    #[error("token.algorithm: {0:?} is none of HS256, RS256 and EdDSA")]
    Algorithm(String),
    /// A PEM file holds no key of its algorithm.
    #[error("{}: no {algorithm:?} key in PEM form", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it was to hold.
        algorithm: Algorithm,
    },
    /// A private key without the public half that verifies what it signs.
    #[error(
        "token.private_key_file: name its key with token.kid, and give the public half of that \
         name in token.verify_keys"
    )]
    PublicHalfMissing,
    /// A private key for HS256, or another algorithm without one.
    #[error("token.algorithm {0:?} needs token.private_key_file (and HS256 takes none)")]
    Mismatch(Algorithm),
    /// The library refuses a key.
    #[error(transparent)]
    Sign(#[from] SignError),
}

/// The algorithms that a key may be pinned to.
const ALGORITHMS: [(&str, Algorithm); 3] =
    [("HS256", Algorithm::HS256), ("RS256", Algorithm::RS256), ("EdDSA", Algorithm::EdDSA)];

fn algorithm(name: &str) -> Option<Algorithm> {
    ALGORITHMS.iter().find(|known| known.0 == name).map(|known| known.1)
}

/// The tokens that `loaded` asks for, `secret` being the HS256 key where there is one.
///
/// # Errors
/// [`KeyError`]: a file can't be read, or the settings do not fit together.
pub(crate) fn tokens_of(loaded: &Loaded, secret: Option<&Secret>) -> Result<Tokens, KeyError> {
    let token = &loaded.settings.token;
    let name = token.algorithm.as_deref().unwrap_or("HS256");
    let wanted = algorithm(name).ok_or_else(|| KeyError::Algorithm(name.to_owned()))?;
    let mut keys = Vec::new();
    let mut signer = None;
    let mut unnamed = None;
    if let Some(secret) = secret {
        let (signs, key) = symmetric(secret, token.kid.clone().filter(|_| is_hs(wanted)))?;
        signer = Some(signs).filter(|_| is_hs(wanted));
        unnamed = Some(0);
        keys.push(key);
    }
    let named = entries(token.verify_keys.as_deref().unwrap_or_default())?;
    for entry in &named {
        keys.push(Key::new(Some(entry.kid.clone()), entry.algorithm, entry.decoding()?));
    }
    match (&token.private_key_file, wanted) {
        (None, Algorithm::HS256) => {}
        (Some(path), Algorithm::RS256 | Algorithm::EdDSA) => {
            let half = |kid: &String| {
                named.iter().any(|entry| entry.kid == *kid && entry.algorithm == wanted)
            };
            let kid = token.kid.clone().filter(half).ok_or(KeyError::PublicHalfMissing)?;
            let key = private(path, wanted)?;
            signer = Some(Signer { algorithm: wanted, key, kid: Some(kid) });
        }
        _ => return Err(KeyError::Mismatch(wanted)),
    }
    if keys.is_empty() {
        return Err(ConfigError::SecretMissing.into());
    }
    Ok(Tokens::of(signer, keys, unnamed))
}

/// Whether HS256 is what signs: the secret then carries the configured name.
fn is_hs(algorithm: Algorithm) -> bool {
    algorithm == Algorithm::HS256
}

/// One of `token.verify_keys`.
struct Entry {
    kid: String,
    algorithm: Algorithm,
    path: PathBuf,
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        let (kid, rest) = text.split_once('=')?;
        let (name, path) = rest.split_once(':')?;
        let (kid, path) = (kid.trim(), path.trim());
        let named = (1..=KID_BYTES_MAX).contains(&kid.len()) && !path.is_empty();
        let algorithm = algorithm(name.trim()).filter(|_| named)?;
        Some(Self { kid: kid.to_owned(), algorithm, path: PathBuf::from(path) })
    }

    fn decoding(&self) -> Result<DecodingKey, KeyError> {
        let pem = |made: Result<DecodingKey, jsonwebtoken::errors::Error>| {
            let (path, algorithm) = (self.path.clone(), self.algorithm);
            made.map_err(|_| KeyError::Pem { path, algorithm })
        };
        match self.algorithm {
            Algorithm::RS256 => pem(DecodingKey::from_rsa_pem(&read(&self.path)?)),
            Algorithm::EdDSA => pem(DecodingKey::from_ed_pem(&read(&self.path)?)),
            _ => {
                let secret = config::secret_in(&self.path)?;
                Ok(DecodingKey::from_secret(secret.bytes()).map_err(SignError::from)?)
            }
        }
    }
}

/// The entries of `text`, separated by commas.
fn entries(text: &str) -> Result<Vec<Entry>, KeyError> {
    let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
    let mut entries: Vec<Entry> = Vec::new();
    for text in texts {
        let entry = Entry::parse(text).ok_or_else(|| KeyError::Entry(text.to_owned()))?;
        if entries.iter().any(|known| known.kid == entry.kid) {
            return Err(KeyError::Twice(entry.kid));
        }
        entries.push(entry);
    }
    if entries.len() > KEYS_MAX {
        return Err(KeyError::TooMany(entries.len()));
    }
    Ok(entries)
}

/// The files that hold what nobody else may know: those are checked for who can read them.
pub(crate) fn secret_files(loaded: &Loaded) -> Vec<PathBuf> {
    let token = &loaded.settings.token;
    let named = entries(token.verify_keys.as_deref().unwrap_or_default()).unwrap_or_default();
    let symmetric = named.into_iter().filter(|entry| is_hs(entry.algorithm));
    let files = [token.secret_file.clone(), token.private_key_file.clone()];
    files.into_iter().flatten().chain(symmetric.map(|entry| entry.path)).collect()
}

fn private(path: &Path, algorithm: Algorithm) -> Result<EncodingKey, KeyError> {
    let bytes = read(path)?;
    let key = match algorithm {
        Algorithm::RS256 => EncodingKey::from_rsa_pem(&bytes),
        _ => EncodingKey::from_ed_pem(&bytes),
    };
    key.map_err(|_| KeyError::Pem { path: path.to_path_buf(), algorithm })
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let op = "read the token key from";
    std::fs::read(path).map_err(|source| ConfigError::File { op, path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::core::ids::UserId;
    use jsonwebtoken::Header;
    use serde_json::json;

    use super::*;
    use crate::config::{Flags, load};
    use crate::identity::{Role, Unauthenticated};
    use crate::time::wall_seconds;

    const ED_PRIVATE: &str = include_str!("../../tests/keys/ed25519-private.pem");
    const ED_PUBLIC: &str = include_str!("../../tests/keys/ed25519-public.pem");
    const RSA_PRIVATE: &str = include_str!("../../tests/keys/rsa-private.pem");
    const RSA_PUBLIC: &str = include_str!("../../tests/keys/rsa-public.pem");
    const OLD: &str = "Q3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE";
    const NEW: &str = "W3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE";

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in [
                ("ed.pem", ED_PRIVATE),
                ("ed.pub", ED_PUBLIC),
                ("rsa.pem", RSA_PRIVATE),
                ("rsa.pub", RSA_PUBLIC),
                ("old", OLD),
                ("new", NEW),
            ] {
                std::fs::write(dir.path().join(name), text).unwrap();
            }
            Self(dir)
        }

        fn path(&self, name: &str) -> String {
            self.0.path().join(name).display().to_string()
        }

        fn tokens(&self, settings: &[(&'static str, &str)]) -> Result<Tokens, KeyError> {
            let mut flags = Flags::default();
            for (key, value) in settings {
                flags.set(key, Some(value.replace('@', &format!("{}/", self.0.path().display()))));
            }
            let loaded = load(&flags).unwrap();
            let secret = config::configured_secret(&loaded)?;
            tokens_of(&loaded, secret.as_ref())
        }
    }

    fn user() -> UserId {
        UserId::new(7).unwrap()
    }

    fn sign(tokens: &Tokens) -> String {
        tokens.sign(user(), Role::User, Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn a_rotation_takes_tokens_of_both_keys_by_their_names() {
        let files = Files::new();
        let old = files.tokens(&[("token.secret_file", "@old"), ("token.kid", "a")]).unwrap();
        let new = files
            .tokens(&[
                ("token.secret_file", "@new"),
                ("token.kid", "b"),
                ("token.verify_keys", "a=HS256:@old"),
            ])
            .unwrap();
        assert!(new.verify(&sign(&old)).is_ok());
        assert!(new.verify(&sign(&new)).is_ok());
        assert_eq!(old.verify(&sign(&new)), Err(Unauthenticated));
        let unnamed = files.tokens(&[("token.secret_file", "@old")]).unwrap();
        assert_eq!(new.verify(&sign(&unnamed)), Err(Unauthenticated), "the old key has a name");
    }

    #[test]
    fn a_server_may_sign_with_one_half_and_another_verify_with_the_other() {
        let files = Files::new();
        for (algorithm, private, keys) in
            [("EdDSA", "@ed.pem", "k=EdDSA:@ed.pub"), ("RS256", "@rsa.pem", "k=RS256:@rsa.pub")]
        {
            let signs = files
                .tokens(&[
                    ("token.private_key_file", private),
                    ("token.algorithm", algorithm),
                    ("token.kid", "k"),
                    ("token.verify_keys", keys),
                ])
                .unwrap();
            let verifies = files.tokens(&[("token.verify_keys", keys)]).unwrap();
            assert_eq!(verifies.verify(&sign(&signs)).unwrap().caller.user, user());
            let refused = verifies.sign(user(), Role::User, Duration::from_secs(60));
            assert!(matches!(refused, Err(SignError::SignedElsewhere)));
            assert!(!verifies.can_sign());
        }
    }

    #[test]
    fn a_public_key_is_never_taken_for_a_secret() {
        let files = Files::new();
        let now = wall_seconds();
        let claims =
            json!({"sub": "7", "role": "admin", "exp": now + 60, "iat": now, "jti": "forged"});
        for (public, keys) in [(ED_PUBLIC, "k=EdDSA:@ed.pub"), (RSA_PUBLIC, "k=RS256:@rsa.pub")] {
            let verifies = files.tokens(&[("token.verify_keys", keys)]).unwrap();
            let pem = EncodingKey::from_secret(public.as_bytes()).unwrap();
            for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
                let mut header = Header::new(algorithm);
                for kid in [Some("k".to_owned()), None, Some("x".to_owned())] {
                    header.kid = kid;
                    let forged = jsonwebtoken::encode(&header, &claims, &pem).unwrap();
                    assert_eq!(verifies.verify(&forged), Err(Unauthenticated), "{header:?}");
                }
            }
        }
    }

    #[test]
    fn settings_that_do_not_fit_together_are_refused() {
        let files = Files::new();
        assert!(files.path("old").ends_with("/old"));
        for settings in [
            &[("token.verify_keys", "e")][..],
            &[("token.verify_keys", "e=RS512:@ed.pub")],
            &[("token.verify_keys", "e=EdDSA:@missing")],
            &[("token.verify_keys", "e=RS256:@ed.pub")],
            &[("token.verify_keys", "e=EdDSA:@old")],
            &[("token.verify_keys", "e=EdDSA:@ed.pub, e=HS256:@old")],
            &[("token.secret_file", "@old"), ("token.algorithm", "none")],
            &[("token.secret_file", "@old"), ("token.algorithm", "EdDSA")],
            &[("token.secret_file", "@old"), ("token.private_key_file", "@ed.pem")],
            &[("token.private_key_file", "@ed.pem"), ("token.algorithm", "EdDSA")],
            &[],
        ] {
            assert!(files.tokens(settings).is_err(), "{settings:?}");
        }
    }
}
