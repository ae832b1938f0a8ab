//! What a row of the older system comes to: pure, as tables.
//!
//! Its life of a purchase: the row is made (`preparing`), then units, counter and a key
//! `flashsale:reservation:<id>` move in Redis, then the row goes on (`pending_publish`,
//! `pending_order`), then one transaction makes the order, takes the units out of the activity's
//! `stock` and sets `ordered`. Backwards, one transaction cancels the order, gives the units back
//! to `stock` and sets `pending_rollback`; then Redis follows (`rolled_back`). So:
//!
//! * an order decides where there is one: it is what buyer and till have seen;
//! * units are out of `stock` as long as an order is alive, whatever the row says: a
//!   `pending_rollback` owes them to Redis alone, and here there is nothing owed;
//! * a `preparing` row may never have got its units. Where Redis can be asked, the key decides, as
//!   it does in the older system's own recovery. Where it can't, the reservation is taken over,
//!   unpaid: its buyer may have been told its number, no unit is sold twice by it, and unpaid it
//!   gives its unit back by itself.

use engine::core::event::{RestoreReason, Status};

/// What Redis knows of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Marker {
    /// Nobody can be asked, or Redis knows nothing of the activity.
    Unknown,
    /// Its units were taken there.
    Taken,
    /// They were given back there.
    GivenBack,
    /// The activity is known there, the reservation is not.
    Absent,
}

/// What a row comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) status: Status,
    /// Its money went back.
    pub(super) refunded: bool,
    /// Its units are out of the activity's `stock`.
    pub(super) out_of_stock: bool,
    /// What does not fit, and was taken as told.
    pub(super) doubt: Option<&'static str>,
}

const UNPAID: Status = Status::Reserved;
const PAID: Status = Status::Confirmed;
const CANCELLED: Status = Status::RolledBack(RestoreReason::Cancelled);
const TIMED_OUT: Status = Status::RolledBack(RestoreReason::Timeout);

/// Judges by the row's status and its order's, of which one is there. `reason` is why the row was
/// rolled back. `None` where a status is none of the older system's.
pub(super) fn judge(
    row: Option<&str>,
    order: Option<&str>,
    reason: Option<&str>,
    marker: Marker,
) -> Option<Verdict> {
    let back = Status::RolledBack(self::reason(reason));
    let of = |status, out_of_stock| Verdict { status, refunded: false, out_of_stock, doubt: None };
    let row_is_back = matches!(row, Some("pending_rollback" | "rolled_back"));
    Some(match (row, order) {
        (Some(row), _) if !is_row(row) => return None,
        (_, Some("paid" | "shipped" | "completed")) => {
            let doubt = row_is_back.then_some("was given back, but its order is paid: taken so");
            Verdict { doubt, ..of(PAID, !row_is_back) }
        }
        (_, Some("refunding")) => {
            let doubt = "was being refunded: finish that where it began, it is taken as paid";
            Verdict { doubt: Some(doubt), ..of(PAID, true) }
        }
        (_, Some("refunded")) => Verdict { refunded: true, ..of(PAID, true) },
        (_, Some("cancelled")) => of(CANCELLED, false),
        (_, Some("timeout")) => of(TIMED_OUT, false),
        (Some("pending_rollback"), Some("pending_payment")) => {
            let doubt = "was being given back, but its order is unpaid: given back here";
            Verdict { doubt: Some(doubt), ..of(back, true) }
        }
        (Some("rolled_back"), Some("pending_payment")) => {
            let doubt = "was given back, but its order is unpaid: taken as given back";
            Verdict { doubt: Some(doubt), ..of(back, false) }
        }
        (_, Some("pending_payment")) => of(UNPAID, true),
        (_, Some(_)) | (None, None) => return None,
        (Some("preparing"), None) => match marker {
            Marker::Taken | Marker::Unknown => of(UNPAID, false),
            Marker::GivenBack | Marker::Absent => of(back, false),
        },
        (Some("pending_publish" | "pending_order"), None) => match marker {
            Marker::GivenBack => of(back, false),
            // A key that is gone was lost, with the units of it: the row is the fact.
            Marker::Taken | Marker::Unknown | Marker::Absent => of(UNPAID, false),
        },
        (Some("ordered"), None) => {
            Verdict { doubt: Some("has no order: taken as unpaid"), ..of(UNPAID, true) }
        }
        (Some("dead_letter"), None) => {
            Verdict { doubt: Some("is a dead letter: taken as unpaid"), ..of(UNPAID, false) }
        }
        (Some(_), None) => of(back, false),
    })
}

fn is_row(status: &str) -> bool {
    let known = [
        "preparing",
        "pending_publish",
        "pending_order",
        "ordered",
        "pending_rollback",
        "rolled_back",
        "dead_letter",
    ];
    known.contains(&status)
}

fn reason(text: Option<&str>) -> RestoreReason {
    match text {
        Some("cancelled") => RestoreReason::Cancelled,
        Some("timeout") => RestoreReason::Timeout,
        Some("dead_letter") => RestoreReason::DeadLetter,
        Some("admin") => RestoreReason::Admin,
        // The older system's own doing.
        _ => RestoreReason::Api,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const API: Status = Status::RolledBack(RestoreReason::Api);

    #[test]
    fn every_pair_of_statuses_comes_to_one_thing() {
        let table = [
            ("preparing", "", UNPAID, false),
            ("pending_publish", "", UNPAID, false),
            ("pending_order", "", UNPAID, false),
            ("pending_order", "pending_payment", UNPAID, true),
            ("ordered", "pending_payment", UNPAID, true),
            ("ordered", "paid", PAID, true),
            ("ordered", "shipped", PAID, true),
            ("ordered", "completed", PAID, true),
            ("ordered", "cancelled", CANCELLED, false),
            ("ordered", "timeout", TIMED_OUT, false),
            ("pending_rollback", "", API, false),
            ("pending_rollback", "cancelled", CANCELLED, false),
            ("rolled_back", "", API, false),
            ("rolled_back", "timeout", TIMED_OUT, false),
            ("", "pending_payment", UNPAID, true),
            ("", "paid", PAID, true),
            ("", "cancelled", CANCELLED, false),
        ];
        let given = |text: &'static str| Some(text).filter(|it| !it.is_empty());
        for (row, order, status, out_of_stock) in table {
            let verdict = judge(given(row), given(order), None, Marker::Unknown);
            let expected = Verdict { status, refunded: false, out_of_stock, doubt: None };
            assert_eq!(verdict, Some(expected), "{row} {order}");
        }
    }

    #[test]
    fn a_status_that_nobody_knows_is_no_verdict() {
        for (row, order) in [(Some("lost"), None), (Some("ordered"), Some("")), (None, None)] {
            assert_eq!(judge(row, order, None, Marker::Unknown), None);
        }
        assert_eq!(judge(Some("PREPARING'; --"), Some("paid"), None, Marker::Unknown), None);
    }

    #[test]
    fn redis_decides_what_may_never_have_been_taken() {
        let status = |row, marker| judge(Some(row), None, None, marker).unwrap().status;
        assert_eq!(status("preparing", Marker::Absent), API);
        assert_eq!(status("preparing", Marker::GivenBack), API);
        assert_eq!(status("preparing", Marker::Taken), UNPAID);
        assert_eq!(status("pending_order", Marker::GivenBack), API);
        assert_eq!(status("pending_order", Marker::Absent), UNPAID);
    }

    #[test]
    fn money_decides_over_the_row_and_what_does_not_fit_is_told() {
        for (row, order) in [("rolled_back", "paid"), ("ordered", "refunding"), ("ordered", "")] {
            let order = Some(order).filter(|it| !it.is_empty());
            let verdict = judge(Some(row), order, None, Marker::Unknown).unwrap();
            assert!(verdict.doubt.is_some(), "{row} {order:?}");
        }
        let refunded = judge(Some("ordered"), Some("refunded"), None, Marker::Unknown).unwrap();
        assert!(refunded.refunded && refunded.status == PAID);
    }
}
