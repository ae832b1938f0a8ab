//! What is measured: each row is one load, and who takes part in it.

use crate::client::{Answers, Kind, Target};
use crate::contenders::{self, Contender};

/// The front that is loaded, as the client calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front {
    Resp,
    Http,
}

impl Front {
    /// The client's subcommand.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
        }
    }
}

/// The kind of answer that a load is made for, and that its figures count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Accepted,
    Replayed,
    Refused,
}

impl Answer {
    /// Those of `answers`.
    pub(crate) const fn of(self, answers: &Answers) -> Kind {
        match self {
            Self::Accepted => answers.accepted,
            Self::Replayed => answers.replayed,
            Self::Refused => answers.refused,
        }
    }
}

/// One load.
pub(crate) struct Workload {
    /// Its name in the table.
    pub(crate) name: &'static str,
    pub(crate) front: Front,
    pub(crate) answer: Answer,
    /// Requests a second that no contender exceeds: as many shoppers are ready.
    per_second_max: u32,
    /// Units; a unit for each shopper where nothing is said.
    stock: Option<&'static str>,
    /// The client's other arguments.
    arguments: &'static [&'static str],
    /// Where Sluice's first turn is drawn over time.
    pub(crate) plot: Option<&'static str>,
    /// Who takes part; Sluice is the first.
    contenders: &'static [Contender],
}

impl Workload {
    /// Who takes part on this machine; Sluice is the first.
    pub(crate) fn contenders(&self) -> Vec<&'static Contender> {
        self.contenders.iter().filter(|contender| contender.is_here()).collect()
    }

    /// The kind of answers that count on `target`: who sells nothing says yes to everyone.
    pub(crate) const fn answer_at(&self, target: &Target) -> Answer {
        if target.sells { self.answer } else { Answer::Accepted }
    }

    /// The client's arguments for a load of `seconds` on `target`.
    pub(crate) fn arguments(&self, seconds: u32, target: &Target) -> Vec<String> {
        let shoppers = (self.per_second_max * seconds).to_string();
        let seconds = format!("{seconds}s");
        let mut arguments = self.arguments.to_vec();
        arguments.extend(["--shoppers", &shoppers, "--requests", &shoppers]);
        arguments.extend(["--duration", &seconds]);
        if target.sells {
            arguments.extend(["--stock", self.stock.unwrap_or(&shoppers)]);
        }
        arguments.into_iter().map(str::to_owned).collect()
    }
}

const RESP: &[Contender] = &[
    contenders::SLUICE_RESP,
    contenders::VALKEY_BARE,
    contenders::VALKEY_BARE_WAIT,
    contenders::VALKEY_LIBRARY,
    contenders::VALKEY_EVERYSEC,
];

/// The same, with another server that syncs once a second and waits for it.
const RESP_AND_REDIS: &[Contender] = &[
    contenders::SLUICE_RESP,
    contenders::VALKEY_BARE,
    contenders::VALKEY_BARE_WAIT,
    contenders::VALKEY_LIBRARY,
    contenders::VALKEY_EVERYSEC,
    contenders::REDIS_BARE,
    contenders::REDIS_EVERYSEC,
];

/// A refusal writes nothing, so that there is nothing to wait for.
const RESP_REFUSED: &[Contender] =
    &[contenders::SLUICE_RESP, contenders::VALKEY_BARE, contenders::VALKEY_LIBRARY];

const HTTP: &[Contender] = &[
    contenders::SLUICE_HTTP,
    contenders::SLUICE_ROUTER,
    contenders::SHOP_MULTIPLEXED,
    contenders::SHOP_POOL,
    contenders::SHOP_MARIADB,
    contenders::HELLO,
    contenders::HELLO_URING,
];

const HTTP_WITHOUT_DISK: &[Contender] = &[
    contenders::SLUICE_HTTP,
    contenders::SLUICE_ROUTER,
    contenders::SHOP_MULTIPLEXED,
    contenders::HELLO,
];

const HTTP_LATENCY: &[Contender] = &[
    contenders::SLUICE_HTTP,
    contenders::SHOP_MULTIPLEXED,
    contenders::SHOP_POOL,
    contenders::HELLO,
    contenders::HELLO_URING,
];

/// All of them, in the order of the table.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "Redis protocol, 50 connections x 64 calls",
        front: Front::Resp,
        answer: Answer::Accepted,
        per_second_max: 2_000_000,
        arguments: &["--connections", "50", "--depth", "64"],
        stock: None,
        plot: Some("over-time-resp.svg"),
        contenders: RESP_AND_REDIS,
    },
    Workload {
        name: "Redis protocol, 50 connections x 16 calls",
        front: Front::Resp,
        answer: Answer::Accepted,
        per_second_max: 1_500_000,
        arguments: &["--connections", "50", "--depth", "16"],
        stock: None,
        plot: None,
        contenders: RESP,
    },
    Workload {
        name: "Redis protocol, 512 connections x 1 call",
        front: Front::Resp,
        answer: Answer::Accepted,
        per_second_max: 300_000,
        arguments: &["--connections", "512", "--depth", "1"],
        stock: None,
        plot: None,
        contenders: RESP_AND_REDIS,
    },
    Workload {
        name: "Redis protocol, 50 connections x 1 call",
        front: Front::Resp,
        answer: Answer::Accepted,
        per_second_max: 300_000,
        arguments: &["--connections", "50", "--depth", "1"],
        stock: None,
        plot: None,
        contenders: RESP,
    },
    Workload {
        name: "Redis protocol, sold out, 50 connections x 64 calls",
        front: Front::Resp,
        answer: Answer::Refused,
        per_second_max: 4_000_000,
        arguments: &["--connections", "50", "--depth", "64"],
        stock: Some("1"),
        plot: None,
        contenders: RESP_REFUSED,
    },
    Workload {
        name: "Redis protocol, sold out, 50 connections x 1 call",
        front: Front::Resp,
        answer: Answer::Refused,
        per_second_max: 400_000,
        arguments: &["--connections", "50", "--depth", "1"],
        stock: Some("1"),
        plot: None,
        contenders: RESP_REFUSED,
    },
    Workload {
        name: "Redis protocol, open loop, 20,000/s, 64 connections",
        front: Front::Resp,
        answer: Answer::Accepted,
        per_second_max: 20_000,
        arguments: &["--connections", "64", "--rate", "20000"],
        stock: None,
        plot: None,
        contenders: RESP,
    },
    Workload {
        name: "HTTP, 256 connections",
        front: Front::Http,
        answer: Answer::Accepted,
        per_second_max: 120_000,
        arguments: &["--connections", "256"],
        stock: None,
        plot: Some("over-time-http.svg"),
        contenders: HTTP,
    },
    Workload {
        name: "HTTP, sold out, 256 connections",
        front: Front::Http,
        answer: Answer::Refused,
        per_second_max: 120_000,
        arguments: &["--connections", "256"],
        stock: Some("1"),
        plot: None,
        contenders: HTTP_WITHOUT_DISK,
    },
    Workload {
        name: "HTTP, nine in ten repeated, 256 connections",
        front: Front::Http,
        answer: Answer::Replayed,
        per_second_max: 120_000,
        arguments: &["--connections", "256", "--repeat-share", "0.9"],
        stock: None,
        plot: None,
        contenders: HTTP_WITHOUT_DISK,
    },
    Workload {
        name: "HTTP, open loop, 20,000/s, 64 connections",
        front: Front::Http,
        answer: Answer::Accepted,
        per_second_max: 20_000,
        arguments: &["--connections", "64", "--rate", "20000"],
        stock: None,
        plot: None,
        contenders: HTTP_LATENCY,
    },
];

/// Loads that are measured for what an answer costs. Nobody has the processor to himself in them,
/// so that a rate says less than the processor time behind it.
pub(crate) const COSTS: &[Workload] = &[
    Workload {
        name: "cost of a purchase, Redis protocol, 50 connections x 64 calls",
        front: Front::Resp,
        answer: Answer::Accepted,
        per_second_max: 2_000_000,
        arguments: &["--connections", "50", "--depth", "64"],
        stock: None,
        plot: None,
        contenders: &[contenders::SLUICE_RESP, contenders::VALKEY_BARE, contenders::VALKEY_LIBRARY],
    },
    Workload {
        name: "cost of a purchase, HTTP, 256 connections",
        front: Front::Http,
        answer: Answer::Accepted,
        per_second_max: 120_000,
        arguments: &["--connections", "256"],
        stock: None,
        plot: None,
        contenders: HTTP,
    },
];
