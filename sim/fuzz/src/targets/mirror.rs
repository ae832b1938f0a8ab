//! What the mirror keeps in Redis for itself: its mark, and the activities it knows.

#[path = "../../../../bridge/src/redis/mark.rs"]
#[allow(dead_code, reason = "the bridge's own file")]
mod mark;

#[path = "../../../../bridge/src/redis/layouts/known.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    unfulfilled_lint_expectations,
    reason = "the bridge's own file"
)]
mod known;

use known::Known;
use mark::Mark;

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(mark) = Mark::parse(text) {
        assert_eq!(mark.to_string(), text, "a mark has one spelling");
        if let Some(place) = mark.place {
            assert!(place.reached() >= place.lsn);
        }
    }
    let Some((id, text)) = text.split_once(' ') else { return };
    let Ok(id) = id.parse() else { return };
    if let Some(known) = Known::decode(id, text) {
        assert_eq!(known.encode(), text, "an activity has one spelling");
    }
}
