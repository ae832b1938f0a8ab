//! The one client of all contenders: `sluice bench`, and its report.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::trouble::Trouble;

/// What the client's JSON says.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    pub(crate) answers: Answers,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) checks: Vec<Verdict>,
    pub(crate) exact: bool,
    pub(crate) drain_s: Option<f64>,
}

/// Answers by kind.
#[derive(Debug, Deserialize)]
pub(crate) struct Answers {
    pub(crate) accepted: Kind,
    pub(crate) refused: Kind,
    pub(crate) all: Kind,
}

/// Answers of one kind.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Kind {
    pub(crate) count: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
}

/// A verdict on the sale.
#[derive(Debug, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) claim: String,
    pub(crate) holds: bool,
    pub(crate) figures: String,
}

/// Whom the client loads, as its arguments and its environment say it.
pub(crate) struct Target {
    pub(crate) arguments: Vec<String>,
    pub(crate) secret: Option<&'static str>,
    /// An activity can be made there.
    pub(crate) sells: bool,
    /// What can be looked at there after a load.
    pub(crate) check: Check,
}

/// What the client looks at when a load is over; each looks at what those before it do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Check {
    /// Nothing: there is no sale.
    None,
    /// The activity's figures.
    Figures,
    /// Each accepted purchase besides.
    All,
}

impl Check {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Figures => "figures",
            Self::All => "all",
        }
    }
}

/// Runs one load; the sale was exact and every request was answered, or it is an error.
pub(crate) fn load(
    sluice: &Path,
    front: &str,
    target: &Target,
    arguments: &[String],
    (contender, workload): (&str, &str),
) -> Result<Report, Trouble> {
    let mut command = Command::new(sluice);
    command.args(["bench", front, "--json", "--quiet"]).args(&target.arguments).args(arguments);
    command.args(["--check", target.check.name()]);
    if let Some(secret) = target.secret {
        command.env("SLUICE_TOKEN__SECRET", secret);
    }
    let program = sluice.display().to_string();
    let output = command.output().map_err(|source| Trouble::Spawn { program, source })?;
    let (contender, workload) = (contender.to_owned(), workload.to_owned());
    let report: Report = match serde_json::from_slice(&output.stdout) {
        Ok(report) => report,
        Err(_) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Trouble::Client { contender, workload, said });
        }
    };
    if !report.exact {
        let wrong: Vec<_> = report
            .checks
            .iter()
            .filter(|check| !check.holds)
            .map(|check| format!("{} ({})", check.claim, check.figures))
            .collect();
        return Err(Trouble::WrongSale { contender, workload, said: wrong.join("; ") });
    }
    let errors = report.errors.values().sum();
    if errors > 0 {
        return Err(Trouble::Unanswered { contender, workload, errors });
    }
    Ok(report)
}
