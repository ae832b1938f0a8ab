//! H17: the campaigns are themselves put to the test. Each known fault, switched on alone, must
//! make one of them fail.

use wal::planted::Bug;

use crate::report::{Report, Settings};
use crate::{compound, corrupt, crash, errors};

/// A campaign as this one runs it.
type Campaign = (&'static str, fn(Settings) -> Report);

/// The campaigns, in the order in which a fault meets them.
pub const CAMPAIGNS: [Campaign; 4] = [
    ("crash", crash::run),
    ("errors", |settings| errors::run(settings).report),
    ("compound", compound::run),
    ("corrupt", corrupt::run),
];

/// A fault, and what each campaign made of it: the first failure, where there was one.
pub struct Hunt {
    /// The fault.
    pub bug: Bug,
    /// By campaign: what gave it away.
    pub caught: Vec<(&'static str, Option<String>)>,
}

impl Hunt {
    /// Whether any campaign failed.
    pub fn is_caught(&self) -> bool {
        self.caught.iter().any(|(_, found)| found.is_some())
    }
}

/// Lets every campaign loose on `bug`.
pub fn hunt(bug: Bug, settings: Settings) -> Hunt {
    let settings = Settings { bug: Some(bug), ..settings };
    let caught = CAMPAIGNS.map(|(name, campaign)| {
        let failure = campaign(settings).failures.into_iter().next();
        (name, failure.map(|failure| failure.what))
    });
    Hunt { bug, caught: caught.into() }
}

/// The score, and who caught what.
pub fn told(hunts: &[Hunt]) -> String {
    let caught = hunts.iter().filter(|hunt| hunt.is_caught()).count();
    let mut told = format!("planted    caught {caught} of {}", hunts.len());
    for Hunt { bug, caught } in hunts {
        let by: Vec<_> =
            caught.iter().filter(|(_, found)| found.is_some()).map(|(name, _)| *name).collect();
        told += &format!("\n  {:<24} {}", format!("{bug:?}"), by.join(", "));
    }
    told
}
