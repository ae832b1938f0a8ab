//! Who may call: users of the port, with what each class of them may do.
//!
//! The port is for back ends that are trusted to name the buyer. Where no users are configured it
//! listens on loopback alone, and whoever reaches it may do everything.

use std::fmt;

use aws_lc_rs::{constant_time, digest};
use engine::core::limits::ACTOR_BYTES_MAX;

/// Bytes of a SHA-256 digest.
const DIGEST_BYTES: usize = 32;

/// Who it is where nobody need say: as Redis calls it.
pub(super) const DEFAULT_USER: &str = "default";

/// What a user may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Reserve, and look at reservations and keys.
    Buyer,
    /// Everything.
    Admin,
}

/// A user of the port.
#[derive(Clone, PartialEq, Eq)]
struct User {
    name: Box<str>,
    class: Class,
    /// Of a password that must be random: this hash does not slow a guesser down.
    digest: [u8; DIGEST_BYTES],
}

/// The users of the port.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Users(Vec<User>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.0.len())
    }
}

/// A list of users that can't be used. The line itself is not shown: it may hold a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsersError {
    #[error(
        "entry {0} is no `<name>:<buyer|admin>:<sha256 of the password in hexadecimal>` with a \
         name of at most 64 bytes"
    )]
    Entry(usize),
    #[error("entry {0} has the name of an entry before it")]
    Twice(usize),
    #[error("the list names nobody")]
    Nobody,
}

/// `AUTH` named no such user, or another password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WrongPass;

impl Users {
    /// The users in `text`: `<name>:<class>:<digest>`, one a line or separated by spaces. A line
    /// that begins with `#` says nothing.
    ///
    /// # Errors
    /// [`UsersError`], naming the entry by its number.
    pub(crate) fn parse(text: &str) -> Result<Self, UsersError> {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let mut users: Vec<User> = Vec::new();
        for (number, entry) in (1..).zip(lines.flat_map(str::split_whitespace)) {
            let user = user(entry).ok_or(UsersError::Entry(number))?;
            if users.iter().any(|known| known.name == user.name) {
                return Err(UsersError::Twice(number));
            }
            users.push(user);
        }
        Ok(Self(users))
    }

    /// Whether nobody is configured.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The user who has `name` and `password`.
    ///
    /// # Errors
    /// [`WrongPass`]; it takes as long for a name that is known as for one that is not.
    pub(super) fn verify(&self, name: &[u8], password: &[u8]) -> Result<(&str, Class), WrongPass> {
        let given = digest::digest(&digest::SHA256, password);
        let known = self.0.iter().find(|user| user.name.as_bytes() == name);
        let expected = known.map_or([0; DIGEST_BYTES], |user| user.digest);
        let same = constant_time::verify_slices_are_equal(given.as_ref(), &expected).is_ok();
        known.filter(|_| same).map(|user| (&*user.name, user.class)).ok_or(WrongPass)
    }
}

fn user(entry: &str) -> Option<User> {
    let mut parts = entry.split(':');
    let (name, class, hex) = (parts.next()?, parts.next()?, parts.next()?);
    let class = match class {
        "buyer" => Class::Buyer,
        "admin" => Class::Admin,
        _ => return None,
    };
    let named = (1..=ACTOR_BYTES_MAX).contains(&name.len());
    let digest = digest_of(hex)?;
    (named && parts.next().is_none()).then(|| User { name: name.into(), class, digest })
}

fn digest_of(hex: &str) -> Option<[u8; DIGEST_BYTES]> {
    let mut bytes = [0; DIGEST_BYTES];
    if hex.len() != 2 * DIGEST_BYTES || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of `open sesame`.
    const HEX: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";

    #[test]
    fn a_user_is_proved_by_name_and_password() {
        let text = format!("# ours\nshop:buyer:{HEX} ops:admin:{}\n", HEX.to_uppercase());
        let users = Users::parse(&text).unwrap();
        assert_eq!(users.verify(b"shop", b"open sesame"), Ok(("shop", Class::Buyer)));
        assert_eq!(users.verify(b"ops", b"open sesame"), Ok(("ops", Class::Admin)));
        for (name, password) in
            [("shop", "Open sesame"), ("shop", ""), ("Shop", "open sesame"), ("", "open sesame")]
        {
            assert_eq!(users.verify(name.as_bytes(), password.as_bytes()), Err(WrongPass));
        }
        assert!(!format!("{users:?}").contains("41ef"));
    }

    #[test]
    fn an_entry_that_is_none_is_refused_by_its_number() {
        let good = format!("a:admin:{HEX}");
        for bad in [
            "b",
            "b:buyer",
            &format!("b:root:{HEX}"),
            &format!("b:buyer:{}", &HEX[1..]),
            &format!("b:buyer:{HEX}:more"),
            &format!(":buyer:{HEX}"),
            &format!("{}:buyer:{HEX}", "x".repeat(65)),
            "b:buyer:open-sesame",
        ] {
            assert_eq!(Users::parse(&format!("{good}\n{bad}")), Err(UsersError::Entry(2)), "{bad}");
        }
        assert_eq!(Users::parse(&format!("{good} {good}")), Err(UsersError::Twice(2)));
        assert!(Users::parse(" \n# none\n").unwrap().is_empty());
    }
}
