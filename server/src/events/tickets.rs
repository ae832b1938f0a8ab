//! Tickets: browsers can't set headers on a stream of events, so they show one in its address.
//!
//! A ticket opens streams of its user, for a minute, and nothing else; an address that ends up in
//! somebody's log is soon worthless. It is signed with a key that this process alone has: nothing
//! is remembered.

use std::fmt::Write as _;

use engine::core::ids::UserId;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// How long a ticket is good: to open a stream, and to come back after a broken connection.
const TTL_SECONDS: u64 = 60;

/// What is signed begins with it: no other signature of ours is taken for a ticket.
const PURPOSE: &[u8] = b"sluice event ticket\0";

/// Longest ticket that is looked at.
const TICKET_BYTES_MAX: usize = 128;

/// Gives and takes tickets.
pub(crate) struct Tickets {
    key: [u8; 64],
}

impl Tickets {
    /// A key of this process: tickets end with it.
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 64];
        getrandom::fill(&mut key)?;
        Ok(Self { key })
    }

    /// A ticket of `user` at `now` (Unix seconds), and when it ends.
    pub(crate) fn issue(&self, user: UserId, now: u64) -> (String, u64) {
        let expires = now.saturating_add(TTL_SECONDS);
        let mut text = format!("{user}.{expires}.");
        for byte in self.mac(user, expires).finalize().into_bytes() {
            // Writing to a String can't fail.
            let _ = write!(text, "{byte:02x}");
        }
        (text, expires)
    }

    /// Whose ticket it is, where it is one at `now` (Unix seconds).
    pub(crate) fn user(&self, ticket: &str, now: u64) -> Option<UserId> {
        if ticket.len() > TICKET_BYTES_MAX {
            return None;
        }
        let mut parts = ticket.split('.');
        let user = parts.next()?.parse().ok().and_then(UserId::new)?;
        let expires: u64 = parts.next()?.parse().ok()?;
        let (signature, None) = (parts.next()?, parts.next()) else { return None };
        let mut bytes = [0; 32];
        if signature.len() != 2 * bytes.len() || !signature.is_ascii() {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&signature[2 * index..2 * index + 2], 16).ok()?;
        }
        // Compares in constant time.
        let good = self.mac(user, expires).verify_slice(&bytes).is_ok();
        (good && now <= expires).then_some(user)
    }

    fn mac(&self, user: UserId, expires: u64) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key);
        let mut mac = mac.unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        mac.update(PURPOSE);
        mac.update(&user.get().to_le_bytes());
        mac.update(&expires.to_le_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_its_users_for_a_minute_and_this_processes() {
        let (tickets, others) = (Tickets::new().unwrap(), Tickets::new().unwrap());
        let user = UserId::new(7).unwrap();
        let (ticket, expires) = tickets.issue(user, 1000);
        assert_eq!(expires, 1060);
        assert_eq!([1000, 1060].map(|now| tickets.user(&ticket, now)), [Some(user); 2]);
        assert_eq!(tickets.user(&ticket, 1061), None);
        assert_eq!(others.user(&ticket, 1000), None);
        let signature = ticket.rsplit('.').next().unwrap();
        for forged in [
            format!("8.1060.{signature}"),
            format!("7.9999.{signature}"),
            format!("7.1060.{}", "0".repeat(64)),
            format!("{ticket}.x"),
            format!("7.1060.{}", "é".repeat(32)),
            "7.1060".to_owned(),
            String::new(),
            "x".repeat(10_000),
        ] {
            assert_eq!(tickets.user(&forged, 1000), None, "{forged}");
        }
    }
}
