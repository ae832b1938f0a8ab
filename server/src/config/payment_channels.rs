//! The ways to pay: where their secrets come from.

use std::fmt::Write as _;
use std::fs;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{ConfigError, PaymentSettings, Secret};
use crate::payments::Channels;

/// What a demo's channel secret is derived from, beside its token secret.
const DEMO_PURPOSE: &[u8] = b"sluice demo payments";

/// The channels that the settings or their file name.
///
/// # Errors
/// The list is given twice, its file can't be read, or it can't be used.
pub(crate) fn payment_channels(settings: &PaymentSettings) -> Result<Channels, ConfigError> {
    let secrets = match (&settings.secrets, &settings.secrets_file) {
        (None, None) => String::new(),
        (Some(_), Some(_)) => return Err(ConfigError::ChannelsTwice),
        (Some(text), None) => text.text().to_owned(),
        (None, Some(path)) => fs::read_to_string(path).map_err(|source| ConfigError::File {
            op: "read the secrets of payments from",
            path: path.clone(),
            source,
        })?,
    };
    Ok(Channels::parse(&secrets, &settings.providers)?)
}

/// The secret of a demo's channel: the token secret's, so that nothing more has to be kept.
///
/// # Errors
/// Never; a derived secret is as good as the one that it is derived from.
pub(crate) fn demo_channel_secret(token_secret: &Secret) -> Result<Secret, ConfigError> {
    let mac = Hmac::<Sha256>::new_from_slice(token_secret.bytes());
    let mut mac = mac.unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    mac.update(DEMO_PURPOSE);
    let mut text = String::new();
    for byte in mac.finalize().into_bytes() {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    Secret::of(&text)
}
