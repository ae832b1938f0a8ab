//! What came of it, for people.

use std::fmt;

use engine::core::command::Refusal;

use super::rows::Facts;

/// Rows that are named, of each kind; more are counted.
const NAMED_MAX: usize = 100;

/// Lines of which the first are kept and the rest are counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Named {
    /// The first of them.
    pub lines: Vec<String>,
    /// How many there were.
    pub count: u64,
}

impl Named {
    pub(super) fn add(&mut self, line: String) {
        self.count += 1;
        if self.lines.len() < NAMED_MAX {
            self.lines.push(line);
        }
    }

    pub(super) fn append(&mut self, other: Self) {
        let count = self.count + other.count;
        other.lines.into_iter().for_each(|line| self.add(line));
        self.count = count;
    }

    /// The lines, and how many more there are.
    pub fn all(&self) -> impl Iterator<Item = String> {
        let more = self.count.saturating_sub(self.lines.len() as u64);
        let more = (more > 0).then(|| format!("and {more} more"));
        self.lines.iter().cloned().chain(more)
    }
}

/// What came over at one start, and what did not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Activities taken over.
    pub activities: u64,
    /// Reservations taken over unpaid.
    pub unpaid: u64,
    /// Reservations taken over paid.
    pub paid: u64,
    /// Those of them whose money went back.
    pub refunded: u64,
    /// Reservations taken over as given back.
    pub given_back: u64,
    /// Those of all of them that only Redis knew.
    pub from_keys: u64,
    /// Reservations that were here already, or whose activity is archived.
    pub known: u64,
    /// Units of activities taken over that no reservation stands for: counted as sold.
    pub kept: Named,
    /// Taken as told although something contradicts it.
    pub doubtful: Named,
    /// Not taken over.
    pub refused: Named,
}

impl Report {
    /// Whether anything was taken over.
    pub fn is_empty(&self) -> bool {
        self.activities + self.unpaid + self.paid + self.given_back == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { activities, unpaid, paid, refunded, given_back, from_keys, known, .. } = self;
        write!(
            f,
            "older system: taken over {activities} activities, {unpaid} unpaid, {paid} paid \
             ({refunded} of them refunded) and {given_back} given back reservations, {from_keys} \
             of them from Redis alone; {known} were here already, {} were refused",
            self.refused.count
        )
    }
}

/// Why the engine did not take it.
pub(super) fn said(refusal: Refusal) -> String {
    match refusal {
        Refusal::Invalid(why) => why.to_owned(),
        Refusal::RequestIdReused => "another reservation has its number or its request".to_owned(),
        Refusal::LimitReached => "its user would hold more units than can be counted".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Why a reservation that found no units is not here, and what an operator does about it.
pub(super) fn short(facts: &Facts) -> String {
    let Facts { activity, quantity, .. } = facts;
    format!(
        "its units are no longer there: restock activity {activity} by {quantity} and start again, \
         or settle it with its buyer and take its row away"
    )
}
