//! H17: the campaigns are themselves put to the test. Each known fault, switched on alone, must
//! make one of them fail.

use wal::planted::Bug;

use crate::report::{Report, Settings};
use crate::{compound, corrupt, crash, errors};

/// A campaign as this one runs it.
type Campaign = (&'static str, fn(Settings) -> Report);

/// The campaigns, the quickest first.
pub const CAMPAIGNS: [Campaign; 4] = [
    ("errors", |settings| errors::run(settings).report),
    ("corrupt", corrupt::run),
    ("compound", compound::run),
    ("crash", crash::run),
];

/// A fault, and what the campaigns made of it.
pub struct Hunt {
    /// The fault.
    pub bug: Bug,
    /// The campaigns that failed, each with what gave the fault away.
    pub caught: Vec<(&'static str, String)>,
}

/// Lets the campaigns loose on `bug`: all of them, or until one has failed.
pub fn hunt(bug: Bug, settings: Settings, all: bool) -> Hunt {
    let settings = Settings { bug: Some(bug), ..settings };
    let mut caught = Vec::new();
    for (name, campaign) in CAMPAIGNS {
        if let Some(failure) = campaign(settings).failures.into_iter().next() {
            caught.push((name, failure.what));
            if !all {
                break;
            }
        }
    }
    Hunt { bug, caught }
}

/// The score, and who caught what.
pub fn told(hunts: &[Hunt]) -> String {
    let caught = hunts.iter().filter(|hunt| !hunt.caught.is_empty()).count();
    let mut told = format!("planted    caught {caught} of {}", hunts.len());
    for Hunt { bug, caught } in hunts {
        let by: Vec<_> = caught.iter().map(|(name, _)| *name).collect();
        told += &format!("\n  {:<24} {}", format!("{bug:?}"), by.join(", "));
    }
    told
}
