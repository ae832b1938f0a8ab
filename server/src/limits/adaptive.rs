//! Slower while the machine is busy, faster again when it is not: the speed of the limits that
//! span users follows the load of all cores.

use super::rate::Speed;

/// Above this load, in percent, the rates are lowered.
const BUSY_PERCENT: u64 = 80;

/// Below this load they are raised again. Between the two they stay: a load that follows the rate
/// must not make it swing.
const IDLE_PERCENT: u64 = 50;

/// The lowest speed: a tenth. A busy neighbour must not close the sale.
const SLOWEST: u64 = 100;

/// The speed that follows `speed` after an interval at `load_percent`. Down by a fifth, up by a
/// tenth of the whole: quick to give way, slow to trust.
pub(crate) fn follow(speed: Speed, load_percent: u64) -> Speed {
    let now = u64::from(speed.thousandths());
    match load_percent {
        load if load > BUSY_PERCENT => Speed::of((now * 4 / 5).max(SLOWEST)),
        load if load < IDLE_PERCENT => Speed::of(now + 100),
        _ => speed,
    }
}

/// Time of all cores as the kernel counts it, in ticks since the machine started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CpuTimes {
    busy: u64,
    all: u64,
}

impl CpuTimes {
    /// The first line of `/proc/stat`: `cpu user nice system idle iowait irq softirq steal ...`.
    pub(crate) fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let idle = ticks.get(3)?.saturating_add(ticks.get(4).copied().unwrap_or(0));
        let all = ticks.iter().sum();
        Some(Self { busy: u64::saturating_sub(all, idle), all })
    }

    /// The load between `before` and this, in percent; `None` where no time has passed.
    pub(crate) fn load_percent_since(self, before: Self) -> Option<u64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.busy.saturating_sub(before.busy).min(all) * 100 / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_slows_down_to_a_tenth_and_an_idle_one_speeds_up_to_the_whole() {
        let mut speed = Speed::FULL;
        let mut seen = Vec::new();
        for load in [81, 81, 80, 50, 49, 49, 49, 49] {
            speed = follow(speed, load);
            seen.push(speed.thousandths());
        }
        assert_eq!(seen, [800, 640, 640, 640, 740, 840, 940, 1000]);
        for _ in 0..100 {
            speed = follow(speed, 100);
        }
        assert_eq!(speed.thousandths(), 100);
    }

    #[test]
    fn the_load_is_what_was_busy_between_two_looks() {
        let at = |line: &str| CpuTimes::parse(line).unwrap();
        let before = at("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4\n");
        let after = at("cpu  160 0 130 710 100 0 0 0 0 0\n");
        assert_eq!(after.load_percent_since(before), Some(90));
        assert_eq!(before.load_percent_since(before), None);
        assert_eq!(before.load_percent_since(after), None, "counters that went back say nothing");
    }

    #[test]
    fn a_line_that_is_none_is_no_load() {
        for text in ["", "cpu", "cpu x", "cpu0 1 2 3 4", "intr 1"] {
            assert_eq!(CpuTimes::parse(text), None, "{text}");
        }
    }
}
