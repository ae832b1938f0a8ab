//! Signatures between this server and providers: HMAC-SHA256 over a timestamp and the raw body.
//!
//! What is signed is `<timestamp>.<body>`; `<timestamp><body>` is taken as well. The two can't be
//! mistaken for one another: a timestamp is digits alone, and a body that begins with a dot is no
//! JSON object.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::config::Secret;

/// How far a timestamp may be from now, seconds: clocks differ, networks delay.
pub(crate) const SKEW_SECONDS_MAX: u64 = 300;

/// Timestamps from here on are milliseconds: as seconds they would be the year 5138.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// Digits of a timestamp at most.
const TIMESTAMP_DIGITS_MAX: usize = 16;

/// Bytes of a signature.
pub(crate) const SIGNATURE_BYTES: usize = 32;

/// A signature, and what it may be remembered by.
pub(crate) type Signature = [u8; SIGNATURE_BYTES];

/// The signature is missing, malformed, another's, or from another time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forged {
    /// The timestamp is no number, or too far from now.
    Timestamp,
    /// The signature is none of the secrets'.
    Signature,
}

/// `X-Signature` of `body` at `timestamp` (Unix seconds), in hexadecimal.
pub(crate) fn sign(secret: &Secret, timestamp: u64, body: &[u8]) -> String {
    let mac = mac(secret, &timestamp.to_string(), b".", body);
    let mut text = String::with_capacity(2 * SIGNATURE_BYTES);
    for byte in mac.finalize().into_bytes() {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Checks a signature over `timestamp` and `body` by any of `secrets`, at `now` (Unix seconds).
///
/// # Errors
/// [`Forged`]
pub(crate) fn verify<'a>(
    secrets: impl IntoIterator<Item = &'a Secret>,
    (timestamp, signature): (&str, &str),
    body: &[u8],
    now: u64,
) -> Result<Signature, Forged> {
    let at = seconds(timestamp).ok_or(Forged::Timestamp)?;
    if at.abs_diff(now) > SKEW_SECONDS_MAX {
        return Err(Forged::Timestamp);
    }
    let signature = parse(signature).ok_or(Forged::Signature)?;
    let is_of = |secret, separator: &[u8]| {
        // Compares in constant time.
        mac(secret, timestamp, separator, body).verify_slice(&signature).is_ok()
    };
    let mut secrets = secrets.into_iter();
    let good = secrets.any(|secret| is_of(secret, b".") || is_of(secret, b""));
    good.then_some(signature).ok_or(Forged::Signature)
}

fn mac(secret: &Secret, timestamp: &str, separator: &[u8], body: &[u8]) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.bytes());
    let mut mac = mac.unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    mac.update(timestamp.as_bytes());
    mac.update(separator);
    mac.update(body);
    mac
}

fn seconds(timestamp: &str) -> Option<u64> {
    let digits = timestamp.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || timestamp.len() > TIMESTAMP_DIGITS_MAX {
        return None;
    }
    let number: u64 = timestamp.parse().ok()?;
    Some(if number >= MILLISECONDS_FROM { number / 1000 } else { number })
}

/// `sha256=<hex>` or `<hex>`.
fn parse(text: &str) -> Option<Signature> {
    let hex = text.strip_prefix("sha256=").unwrap_or(text).as_bytes();
    if hex.len() != 2 * SIGNATURE_BYTES {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let mut signature = [0; SIGNATURE_BYTES];
    for (byte, pair) in signature.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        serde_json::from_value(text.into()).unwrap()
    }

    const NOW: u64 = 1_796_000_000;

    #[test]
    fn a_signature_is_its_secrets_times_and_bodys_alone() {
        let (ours, old) = (secret("k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE"), secret("another"));
        let signature = sign(&ours, NOW, b"{}");
        let check = |timestamp: &str, signature: &str, body: &[u8], now| {
            verify([&old, &ours], (timestamp, signature), body, now).map(|_| ())
        };
        let at = NOW.to_string();
        assert_eq!(check(&at, &signature, b"{}", NOW), Ok(()));
        assert_eq!(check(&at, &format!("sha256={signature}"), b"{}", NOW), Ok(()));
        assert_eq!(check(&at, &signature.to_uppercase(), b"{}", NOW), Ok(()));
        assert_eq!(check(&at, &sign(&old, NOW, b"{}"), b"{}", NOW), Ok(()), "a rotation");
        for (timestamp, signature, body) in [
            (at.as_str(), signature.as_str(), &b"{ }"[..]),
            (&(NOW + 1).to_string(), &signature, b"{}"),
            (&at, &sign(&secret("third"), NOW, b"{}"), b"{}"),
            (&at, &signature[2..], b"{}"),
            (&at, "", b"{}"),
            (&at, &"zz".repeat(32), b"{}"),
        ] {
            assert_eq!(check(timestamp, signature, body, NOW), Err(Forged::Signature));
        }
    }

    #[test]
    fn a_timestamp_is_at_most_five_minutes_away_in_seconds_or_milliseconds() {
        let ours = secret("k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE");
        let signature = sign(&ours, NOW, b"{}");
        let at = |now| verify([&ours], (&NOW.to_string(), &signature), b"{}", now).is_ok();
        for (now, good) in [(300, true), (301, false)] {
            assert_eq!([at(NOW + now), at(NOW - now)], [good, good]);
        }
        let ms = NOW * 1000 + 5;
        let signed = sign(&ours, ms, b"{}");
        assert!(verify([&ours], (&ms.to_string(), &signed), b"{}", NOW).is_ok());
        for bad in ["", "-1", "+1", "soon", "1.5", "99999999999999999999"] {
            let verdict = verify([&ours], (bad, &signature), b"{}", NOW);
            assert_eq!(verdict, Err(Forged::Timestamp), "{bad}");
        }
    }

    #[test]
    fn a_body_follows_its_timestamp_with_a_dot_or_without() {
        let ours = secret("k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE");
        let plain: String = mac(&ours, &NOW.to_string(), b"", b"{}")
            .finalize()
            .into_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert!(verify([&ours], (&NOW.to_string(), &plain), b"{}", NOW).is_ok());
    }
}
