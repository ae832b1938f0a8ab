//! What is counted of payments.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::core::event::PaymentVerdict;

/// The verdicts, by the names that SQL has for them.
const VERDICTS: [(PaymentVerdict, &str); 7] = [
    (PaymentVerdict::Accepted, "accepted"),
    (PaymentVerdict::Repeated, "repeated"),
    (PaymentVerdict::WrongAmount, "wrong_amount"),
    (PaymentVerdict::Unknown, "unknown"),
    (PaymentVerdict::SecondPayment, "second_payment"),
    (PaymentVerdict::Late, "late"),
    (PaymentVerdict::Failed, "failed"),
];

/// The names of all verdicts.
pub(crate) fn verdict_names() -> [&'static str; 7] {
    VERDICTS.map(|(_, name)| name)
}

/// The name of a verdict.
pub(crate) fn verdict_name(verdict: PaymentVerdict) -> &'static str {
    let known = VERDICTS.iter().find(|(known, _)| *known == verdict);
    known.map_or("unknown", |(_, name)| *name)
}

/// What came of asking a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// The money is back.
    Settled,
    /// The provider will give it back.
    Taken,
    /// The provider refused for good.
    Refused,
    /// No answer that counts: asked again.
    NoAnswer,
}

/// The outcomes, by name.
const ASKED: [(Asked, &str); 4] = [
    (Asked::Settled, "settled"),
    (Asked::Taken, "taken"),
    (Asked::Refused, "refused"),
    (Asked::NoAnswer, "no_answer"),
];

/// Counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    callbacks: [AtomicU64; VERDICTS.len()],
    asked: [AtomicU64; ASKED.len()],
    forged: AtomicU64,
    replayed: AtomicU64,
    /// Refunds that no provider has settled, at the refunder's last look.
    open: AtomicU64,
    /// Those of them that nobody can be asked about.
    without_provider: AtomicU64,
    /// When the oldest of them was asked for, Unix milliseconds; 0 for none.
    oldest_ms: AtomicU64,
}

impl Counts {
    /// A callback was recorded.
    pub(crate) fn callback(&self, verdict: PaymentVerdict) {
        for ((known, _), counter) in VERDICTS.iter().zip(&self.callbacks) {
            if *known == verdict {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A callback was refused by its signature.
    pub(crate) fn forged(&self) {
        self.forged.fetch_add(1, Ordering::Relaxed);
    }

    /// A callback was answered as the one that it is a copy of.
    pub(crate) fn replayed(&self) {
        self.replayed.fetch_add(1, Ordering::Relaxed);
    }

    /// A provider was asked for a refund.
    pub(super) fn asked(&self, outcome: Asked) {
        for ((known, _), counter) in ASKED.iter().zip(&self.asked) {
            if *known == outcome {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What the refunder has seen.
    pub(super) fn open(&self, open: usize, without_provider: usize, oldest_ms: u64) {
        self.open.store(open as u64, Ordering::Relaxed);
        self.without_provider.store(without_provider as u64, Ordering::Relaxed);
        self.oldest_ms.store(oldest_ms, Ordering::Relaxed);
    }

    /// Recorded callbacks by verdict.
    pub(crate) fn callbacks(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = VERDICTS.iter().map(|(_, name)| *name);
        names.zip(self.callbacks.iter().map(|counter| counter.load(Ordering::Relaxed)))
    }

    /// Providers' answers by outcome.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ASKED.iter().map(|(_, name)| *name);
        names.zip(self.asked.iter().map(|counter| counter.load(Ordering::Relaxed)))
    }

    /// Callbacks refused by their signature, and copies answered without a record.
    pub(crate) fn refused(&self) -> [u64; 2] {
        [&self.forged, &self.replayed].map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Open refunds, those without a provider, and when the oldest was asked for.
    pub(crate) fn refunds(&self) -> [u64; 3] {
        let gauges = [&self.open, &self.without_provider, &self.oldest_ms];
        gauges.map(|gauge| gauge.load(Ordering::Relaxed))
    }
}
