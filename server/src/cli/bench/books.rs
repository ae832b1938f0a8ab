//! The sale checked in its database, past the server: the orders that are really there.

use std::time::{Duration, Instant};

use bridge::sql::queries::Queries;
use bridge::sql::split::Split;
use bridge::sql::tally::Tally;
use engine::core::ids::ActivityId;

use super::BenchError;
use super::sale::Activity;
use super::verify::{Check, check};

/// Between two looks at figures that are not the engine's yet.
const LOOK_WAIT: Duration = Duration::from_millis(50);

/// The database of the server under load.
#[derive(Debug)]
pub(super) struct Books {
    queries: Queries,
    activity: ActivityId,
    before: Tally,
}

impl Books {
    /// Opens the database at `url` and notes what it holds before the run, once it has caught up
    /// with the figures in `engine`.
    ///
    /// # Errors
    /// Where the database can't be named or read.
    pub(super) async fn open(
        url: &str,
        engine: &Activity,
        deadline: Instant,
    ) -> Result<Self, BenchError> {
        // A split database has views over its parts: counting needs no more.
        let queries = Queries::open(url, Split::ONE)?;
        let activity = ActivityId::new(engine.id).ok_or(BenchError::Activity)?;
        let mut books = Self { queries, activity, before: Tally::default() };
        books.before = books.read(engine, deadline).await?;
        Ok(books)
    }

    /// What the database holds once its figures are those in `engine`, or at `deadline`.
    async fn read(&self, engine: &Activity, deadline: Instant) -> Result<Tally, BenchError> {
        loop {
            let tally = self.queries.tally(self.activity).await?;
            if agrees(&tally, engine) || Instant::now() >= deadline {
                return Ok(tally);
            }
            tokio::time::sleep(LOOK_WAIT).await;
        }
    }

    /// Judges the run by its orders: `engine` has the figures after it, `accepted` purchases were
    /// told so, `unsettled` may have been.
    ///
    /// # Errors
    /// Where the database can't be read.
    pub(super) async fn judge(
        &self,
        engine: &Activity,
        (accepted, unsettled): (u64, u64),
        deadline: Instant,
    ) -> Result<Vec<Check>, BenchError> {
        let after = self.read(engine, deadline).await?;
        Ok(verdicts(&self.before, &after, engine, accepted, unsettled))
    }
}

fn agrees(tally: &Tally, engine: &Activity) -> bool {
    let Activity { total, available, locked, sold, .. } = *engine;
    [tally.total, tally.available, tally.locked, tally.sold] == [total, available, locked, sold]
}

fn verdicts(
    before: &Tally,
    after: &Tally,
    engine: &Activity,
    accepted: u64,
    unsettled: u64,
) -> Vec<Check> {
    let made = after.orders.saturating_sub(before.orders);
    vec![
        check(
            "orders made in SQL = purchases accepted",
            (accepted..=accepted + unsettled).contains(&made),
            format!(
                "orders {} -> {}; accepted {accepted}, unknown {unsettled}",
                before.orders, after.orders
            ),
        ),
        check(
            "each order in SQL has its item and its reservation, once",
            after.whole == after.orders,
            format!("{} of {}", after.whole, after.orders),
        ),
        check(
            "SQL and the engine have the same units",
            agrees(after, engine),
            format!(
                "available {} and {}, locked {} and {}, sold {} and {}",
                after.available,
                engine.available,
                after.locked,
                engine.locked,
                after.sold,
                engine.sold
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: Activity =
        Activity { id: 1, total: 10, available: 7, locked: 3, sold: 0, per_user_limit: 1 };
    const BEFORE: Tally =
        Tally { orders: 1, whole: 1, total: 10, available: 9, locked: 1, sold: 0 };
    const AFTER: Tally = Tally { orders: 3, whole: 3, available: 7, locked: 3, ..BEFORE };

    #[test]
    fn each_difference_fails_the_check_that_names_it() {
        let failed = |after: Tally| {
            let checks = verdicts(&BEFORE, &after, &ENGINE, 2, 0).into_iter();
            checks.filter(|check| !check.holds).map(|check| check.claim).collect::<Vec<_>>()
        };
        assert_eq!(failed(AFTER), [""; 0]);
        for (after, claim) in [
            (Tally { orders: 2, whole: 2, ..AFTER }, "orders made in SQL = purchases accepted"),
            (Tally { orders: 4, whole: 4, ..AFTER }, "orders made in SQL = purchases accepted"),
            (
                Tally { whole: 2, ..AFTER },
                "each order in SQL has its item and its reservation, once",
            ),
            (Tally { locked: 2, ..AFTER }, "SQL and the engine have the same units"),
        ] {
            assert_eq!(failed(after), [claim], "{after:?}");
        }
    }

    #[test]
    fn an_unknown_outcome_may_be_an_order_or_not() {
        for (orders, holds) in [(3, true), (4, true), (5, false)] {
            let after = Tally { orders, whole: orders, ..AFTER };
            assert_eq!(verdicts(&BEFORE, &after, &ENGINE, 2, 1)[0].holds, holds);
        }
    }
}
