//! Passwords: argon2id hashes, computed beside the sale and never in its way.
//!
//! A hash costs 19 MiB and tens of milliseconds by design. A login storm would take every core
//! and starve purchases, so few hashes are computed at once, a few callers wait for their turn,
//! and the rest are told to come back. An account that does not exist is verified against a hash
//! of nothing, so that the time of an answer does not tell which names exist.

use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};
use tokio::sync::Semaphore;

/// Memory, passes, lanes: the first choice of OWASP's list for argon2id.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// The most that a hash from elsewhere may ask for: a verification must not take the machine.
const MEMORY_KIB_MAX: u32 = 64 * 1024;
const PASSES_MAX: u32 = 10;

/// Bytes of a salt.
const SALT_BYTES: usize = 16;

/// Callers that wait for a hash: some seconds' worth.
const WAITING_MAX: usize = 64;

/// A hash with our costs that no password has: its output was made up.
const OF_NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2x1aWNlLW9mLW5vYm9keQ$\
    AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

/// Why there is no answer about a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PasswordError {
    /// Too many wait already.
    Busy,
    /// No randomness, no memory, or a task died.
    Failed,
}

/// Hashes and verifies passwords.
pub(crate) struct Passwords {
    /// Hashes at once: half of the cores, so that the other half sells.
    cores: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Passwords {
    /// Half of the machine's cores, at least one.
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cores = Arc::new(Semaphore::new((cores / 2).max(1)));
        Self { cores, waiting: Semaphore::new(WAITING_MAX) }
    }

    /// A hash of `password` under a new salt.
    ///
    /// # Errors
    /// [`PasswordError`]
    pub(crate) async fn hash(&self, password: String) -> Result<String, PasswordError> {
        self.run(move || {
            let mut salt = [0; SALT_BYTES];
            getrandom::fill(&mut salt).map_err(|_| PasswordError::Failed)?;
            let hash = ours()?.hash_password_with_salt(password.as_bytes(), &salt);
            hash.map(|hash| hash.to_string()).map_err(|_| PasswordError::Failed)
        })
        .await
    }

    /// Whether `password` is the one that `hash` was made of; `None` is an account that does not
    /// exist or has no password, and costs the same.
    ///
    /// # Errors
    /// [`PasswordError`]
    pub(crate) async fn verify(
        &self,
        password: String,
        hash: Option<String>,
    ) -> Result<bool, PasswordError> {
        self.run(move || {
            let exists = hash.is_some();
            let hash = hash.as_deref().unwrap_or(OF_NOBODY);
            let parsed = PasswordHash::new(hash).map_err(|_| PasswordError::Failed)?;
            let same = ours()?.verify_password(password.as_bytes(), &parsed).is_ok();
            Ok(same && exists)
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, PasswordError> + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _waiting = self.waiting.try_acquire().map_err(|_| PasswordError::Busy)?;
        let core = Arc::clone(&self.cores).acquire_owned().await;
        let core = core.map_err(|_| PasswordError::Failed)?;
        // The core is held by the work, not by the caller: one that hangs up frees nothing.
        let work = tokio::task::spawn_blocking(move || {
            let _core = core;
            work()
        });
        work.await.unwrap_or(Err(PasswordError::Failed))
    }
}

fn ours() -> Result<Argon2<'static>, PasswordError> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(|_| PasswordError::Failed)?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

/// Whether `text` is an argon2id hash in PHC form that this server can verify at a bearable cost.
pub(crate) fn is_usable_hash(text: &str) -> bool {
    let Ok(hash) = PasswordHash::new(text) else { return false };
    let Ok(params) = Params::try_from(&hash) else { return false };
    hash.algorithm.as_str() == "argon2id"
        && hash.hash.is_some()
        && hash.salt.is_some()
        && params.m_cost() <= MEMORY_KIB_MAX
        && params.t_cost() <= PASSES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn a_password_verifies_under_its_own_hash_alone() {
        run(async {
            let passwords = Passwords::new();
            let hash = passwords.hash("correct horse".to_owned()).await.unwrap();
            assert!(is_usable_hash(&hash), "{hash}");
            let verify = |text: &str, hash: Option<&String>| {
                passwords.verify(text.to_owned(), hash.cloned())
            };
            assert_eq!(verify("correct horse", Some(&hash)).await, Ok(true));
            assert_eq!(verify("correct horsf", Some(&hash)).await, Ok(false));
            let again = passwords.hash("correct horse".to_owned()).await.unwrap();
            assert_ne!(hash, again, "each hash has a salt of its own");
        });
    }

    #[test]
    fn an_account_that_does_not_exist_costs_what_ours_cost_and_never_verifies() {
        let hash = PasswordHash::new(OF_NOBODY).unwrap();
        let params = Params::try_from(&hash).unwrap();
        assert_eq!(
            (params.m_cost(), params.t_cost(), params.p_cost()),
            (MEMORY_KIB, PASSES, LANES)
        );
        assert_eq!(run(Passwords::new().verify(String::new(), None)), Ok(false));
    }

    #[test]
    fn those_beyond_the_waiting_room_are_sent_away_at_once() {
        run(async {
            let passwords = Passwords::new();
            let _all = passwords.waiting.acquire_many(64).await.unwrap();
            let refused = passwords.verify("x".to_owned(), None).await;
            assert_eq!(refused, Err(PasswordError::Busy));
        });
    }

    #[test]
    fn a_hash_of_another_kind_or_of_unbearable_cost_is_refused() {
        let salt_and_hash = "c2x1aWNlLW9mLW5vYm9keQ$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        for head in ["$argon2id$v=19$m=19456,t=2,p=1", "$argon2id$v=19$m=65536,t=10,p=4"] {
            assert!(is_usable_hash(&format!("{head}${salt_and_hash}")), "{head}");
        }
        for head in [
            "$argon2i$v=19$m=19456,t=2,p=1",
            "$argon2d$v=19$m=19456,t=2,p=1",
            "$argon2id$v=19$m=1048576,t=2,p=1",
            "$argon2id$v=19$m=19456,t=1000,p=1",
            "$scrypt$ln=16,r=8,p=1",
        ] {
            assert!(!is_usable_hash(&format!("{head}${salt_and_hash}")), "{head}");
        }
        for text in ["", "hunter2", "$2b$12$abcdefghijklmnopqrstuv", "$argon2id$v=19$m=8,t=1,p=1"] {
            assert!(!is_usable_hash(text), "{text}");
        }
    }
}
