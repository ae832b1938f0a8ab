//! The ways to pay: each has a name, the secrets that its provider signs with, and, where refunds
//! are to be made from here, the provider.

use std::sync::Arc;

use engine::core::limits::NAME_BYTES_MAX;

use super::http_provider::HttpProvider;
use super::provider::{MockProvider, Provider};
use crate::config::Secret;

/// The channel of a buyer who names none, and of demos.
pub(crate) const MOCK: &str = "mock";

/// The provider that is this process.
const MOCK_PROVIDER: &str = "mock:";

/// Channels that can't be used. No entry is shown: it may hold a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ChannelsError {
    /// No name, or no secret.
    #[error(
        "payments.secrets: entry {0} is no <channel>:<secret> with a name of at most 32 of a-z, \
         0-9, - and _"
    )]
    Entry(usize),
    /// The secret keeps nobody out.
    #[error(
        "payments.secrets: entry {0}: a secret must have at least 32 random bytes and be no \
         well-known one"
    )]
    Secret(usize),
    /// A provider of a channel that has no secret, or at no address.
    #[error(
        "payments.providers: entry {0} is no <channel>=mock: or <channel>=http://<host>/<path> of \
         a channel with a secret; TLS ends at a proxy"
    )]
    Provider(usize),
}

struct Channel {
    name: Box<str>,
    /// The first signs; all of them are taken, so that a secret can be replaced.
    secrets: Vec<Secret>,
    provider: Option<Arc<dyn Provider>>,
}

/// The ways to pay.
#[derive(Default)]
pub(crate) struct Channels(Vec<Channel>);

impl Channels {
    /// The channels of `secrets` (`<channel>:<secret>`, separated by blanks, commas or lines; one
    /// named twice takes both secrets) with `providers` (`<channel>=<address>`).
    ///
    /// # Errors
    /// [`ChannelsError`]
    pub(crate) fn parse(secrets: &str, providers: &str) -> Result<Self, ChannelsError> {
        let mut channels = Self::default();
        for (number, entry) in (1..).zip(entries(secrets)) {
            let (name, secret) = entry.split_once(':').ok_or(ChannelsError::Entry(number))?;
            if !is_name(name) {
                return Err(ChannelsError::Entry(number));
            }
            let secret = Secret::of(secret).map_err(|_| ChannelsError::Secret(number))?;
            channels.add(name, secret);
        }
        for (number, entry) in (1..).zip(entries(providers)) {
            let wrong = || ChannelsError::Provider(number);
            let (name, address) = entry.split_once('=').ok_or_else(wrong)?;
            let channel = channels.0.iter_mut().find(|channel| *channel.name == *name);
            let channel = channel.ok_or_else(wrong)?;
            let secret = channel.secrets.first().ok_or_else(wrong)?;
            channel.provider = Some(match address {
                MOCK_PROVIDER => Arc::new(MockProvider),
                url => Arc::new(HttpProvider::at(url, secret.clone()).ok_or_else(wrong)?),
            });
        }
        Ok(channels)
    }

    fn add(&mut self, name: &str, secret: Secret) {
        match self.0.iter_mut().find(|channel| *channel.name == *name) {
            Some(channel) => channel.secrets.push(secret),
            None => {
                let secrets = vec![secret];
                self.0.push(Channel { name: name.into(), secrets, provider: None });
            }
        }
    }

    /// Adds the demo's channel, where there is none of its name, and a provider for it.
    pub(crate) fn with_demo(mut self, secret: Secret) -> Self {
        if !self.has(MOCK) {
            self.add(MOCK, secret);
        }
        let mut mock = self.0.iter_mut().filter(|channel| *channel.name == *MOCK);
        if let Some(channel) = mock.find(|channel| channel.provider.is_none()) {
            channel.provider = Some(Arc::new(MockProvider));
        }
        self
    }

    /// Whether one can pay by `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|channel| *channel.name == *name)
    }

    /// What `name`'s callbacks may be signed with: nothing, where there is no such channel.
    pub(crate) fn secrets(&self, name: &str) -> &[Secret] {
        let channel = self.0.iter().find(|channel| *channel.name == *name);
        channel.map_or(&[], |channel| &channel.secrets)
    }

    /// Who gives `name`'s money back.
    pub(super) fn provider(&self, name: &str) -> Option<Arc<dyn Provider>> {
        self.0.iter().find(|channel| *channel.name == *name)?.provider.clone()
    }
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    let separators = |separator: char| separator == ',' || separator.is_whitespace();
    text.split(separators).filter(|entry| !entry.is_empty())
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE";

    fn error(secrets: &str, providers: &str) -> ChannelsError {
        Channels::parse(secrets, providers).err().unwrap()
    }

    #[test]
    fn channels_have_secrets_of_their_own_and_perhaps_a_provider() {
        let secrets = format!("mock:{SECRET}, bank:{SECRET}x\nmock:{SECRET}y");
        let providers = "mock=mock:, bank=http://[::1]:8099/refunds?v=1";
        let channels = Channels::parse(&secrets, providers).unwrap();
        let counts = ["mock", "bank", "none"].map(|name| channels.secrets(name).len());
        assert_eq!(counts, [2, 1, 0]);
        assert!(channels.provider("mock").is_some() && channels.provider("bank").is_some());
        assert!(Channels::parse("", "").unwrap().0.is_empty());
    }

    #[test]
    fn what_is_no_channel_is_refused_by_its_place_and_no_secret_is_told() {
        let good = format!("mock:{SECRET}");
        for entry in ["mock", "Mock:x", ":x", "a/b:x"] {
            assert_eq!(error(&format!("{good},{entry}"), ""), ChannelsError::Entry(2), "{entry}");
        }
        assert_eq!(error("mock:hunter2", ""), ChannelsError::Secret(1));
        for entry in [
            "mock",
            "bank=mock:",
            "mock=https://h/",
            "mock=ftp://h/",
            "mock=http://u:p@h/",
            "mock=",
        ] {
            assert_eq!(error(&good, entry), ChannelsError::Provider(1), "{entry}");
        }
        assert!(!error("mock:hunter2", "").to_string().contains("hunter2"));
    }

    #[test]
    fn a_demo_has_a_way_to_pay_whatever_is_configured() {
        let secret = || Secret::of(SECRET).unwrap();
        let demo = Channels::default().with_demo(secret());
        assert!(demo.has(MOCK) && demo.provider(MOCK).is_some());
        let own = Channels::parse(&format!("mock:{SECRET}z"), "").unwrap().with_demo(secret());
        assert_eq!(own.secrets(MOCK).len(), 1);
        assert!(own.provider(MOCK).is_some());
    }
}
