//! The warm-up before a start: early callers are let through slowly, and faster as the start
//! comes near, so that caches and connections are warm when the rush begins.

use super::rate::Speed;
use super::rules::Limits;

/// The speed of an activity's limits `until_start_ms` before its start (0 from the start on).
pub(crate) fn speed(limits: &Limits, until_start_ms: u64) -> Speed {
    let ramp_ms = u64::try_from(limits.ramp.0.as_millis()).unwrap_or(u64::MAX);
    if ramp_ms == 0 || until_start_ms == 0 {
        return Speed::FULL;
    }
    let from = limits.ramp_from_percent.0 * 10;
    let gone_ms = ramp_ms.saturating_sub(until_start_ms);
    Speed::of(from + (1000 - from) * gone_ms / ramp_ms)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::limits::Rules;

    fn speeds(document: &Value) -> Vec<u32> {
        let limits = Rules::of(document, &Value::Null).unwrap().stable;
        let before = [1_000_000, 60_000, 30_000, 15_000, 1, 0];
        before.iter().map(|ms| speed(&limits, *ms).thousandths()).collect()
    }

    #[test]
    fn the_rate_rises_from_the_first_percent_to_the_whole_at_the_start() {
        let document = json!({"ramp": "30s", "ramp_from_percent": 20});
        assert_eq!(speeds(&document), [200, 200, 200, 600, 999, 1000]);
    }

    #[test]
    fn without_a_ramp_there_is_no_warm_up() {
        assert_eq!(speeds(&json!({})), [1000; 6]);
    }
}
