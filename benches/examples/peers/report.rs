//! The table, as a page of the documentation.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::figures::{CostSeries, Series, Spread};
use crate::plot;
use crate::trouble::Trouble;

/// What opens the page: how it was made, and how it is to be read.
const HEAD: &str = "# Sluice beside its peers

Rendered by `cargo xtask bench peers`; do not edit. Absolute figures move from machine to machine
and from minute to minute: what says something are the ratios, each within one run.

- Client and servers share the same cores.
- One client, `sluice bench`, loads all of them. Each turn begins on an empty directory with a
  server of its own, and the order of the contenders moves on by one in every round.
- A purchase counts when it is answered, and is answered when it is on disk. Not so with `everysec`:
  Valkey 8.0.1 answers `WAITAOF` there, ten times a second, before the file is synced (beside a turn
  of 50 x 1, `strace -f -c -e fdatasync -p PID` counted 3 syncs in 3 s, while 1,400 answers came);
  its rows show what that configuration gives, not what a durable answer costs. Redis 8 waits there
  for the sync, which comes once a second.
- After each turn the sale is checked: units taken are purchases accepted, no request id has two
  reservations, nobody holds more than the limit. On Sluice and with the function library each
  accepted purchase is looked up besides; over HTTP Sluice has made an order of each in SQLite,
  which the other services have not.
- The bare script takes stock, raises the buyer's counter and fills the slot of the request id
  ([bare.lua](../benches/examples/peers/bare.lua)), as older systems do; the function library
  ([sluice.lua](../functions/sluice.lua)) answers as Sluice does. \"One connection\" shares a
  multiplexed connection among all requests; \"a pool\" calls the script and then `WAITAOF` on a
  connection of the request's own, of 64. MariaDB syncs every commit; 16 connections.
- \"By hyper and axum alone\" is the same server, asked with a header that no plain purchase has
  (`--header 'Trailer: none'`), so that its router answers each.
- Those with \"no shop\" find the end of a request and say yes, on one thread: by epoll, and by
  io_uring as a runtime made for it does, a task a connection and a write an answer.
- Latencies are of whole answers; in an open loop they count from when a request was to be sent. A
  batch in process is one answer.
- Where nine in ten are repeated all answers count, the first ones, too.
- Figures are medians of the rounds, with the range behind. The last two columns divide Sluice's
  median by the contender's: a rate above 1 and a latency below 1 speak for Sluice.
";

/// Where the plots lie, beside the page.
pub(crate) const FOLDER: &str = "benchmarks";

/// What the client draws.
const OVER_TIME: [(&str, &str); 2] = [
    ("over-time-resp.svg", "Sluice over time, Redis protocol"),
    ("over-time-http.svg", "Sluice over time, HTTP"),
];

/// Where the time goes: drawn by hand, by the commands on the page.
const FLAMES: [(&str, &str); 2] = [
    ("flame-resp.svg", "Sluice under 50 connections x 64 calls of the Redis protocol"),
    ("flame-http.svg", "Sluice under 256 connections of HTTP"),
];

const FLAMES_HEAD: &str = "
## Where the time goes

Flame graphs of a running server, width is processor time; open one by itself to look into it. Made
while `sluice bench` loads `sluice serve --demo`, with the tools of the package `inferno`:

```text
perf record -e cpu-clock -F 299 --call-graph dwarf,32768 -p PID -o perf.data -- sleep 3
perf script --no-inline -i perf.data | inferno-collapse-perf > folded
inferno-flamegraph --minwidth 0.2 < folded > flame.svg
```

What limits each row, and how that was found: [performance.md](performance.md).
";

/// One contender at one workload.
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) contender: &'static str,
    pub(crate) series: Series,
}

impl Row {
    /// A row.
    pub(crate) const fn new(
        workload: &'static str,
        contender: &'static str,
        series: Series,
    ) -> Self {
        Self { workload, contender, series }
    }
}

/// What an answer of one workload cost one contender.
pub(crate) struct CostRow {
    pub(crate) workload: &'static str,
    pub(crate) contender: &'static str,
    pub(crate) series: CostSeries,
}

/// All of a run.
pub(crate) struct Table {
    /// Workload by workload, Sluice first in each.
    pub(crate) rows: Vec<Row>,
    /// The same, for what an answer costs.
    pub(crate) costs: Vec<CostRow>,
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) profile: String,
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) took: Duration,
}

impl Table {
    /// The rows of each workload.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|one, other| one.workload == other.workload)
    }
}

/// Writes the page and its plots into `out`.
pub(crate) fn write(table: &Table, out: &Path) -> Result<(), Trouble> {
    let folder = out.join(FOLDER);
    let mut plots = plot::draw(table, &folder)?;
    plots.extend(OVER_TIME);
    let mut page = render(table);
    show(&mut page, &plots, &folder);
    if folder.join(FLAMES[0].0).exists() {
        page += FLAMES_HEAD;
        show(&mut page, &FLAMES, &folder);
    }
    let file = out.join("benchmarks.md");
    std::fs::write(&file, page).map_err(Trouble::io(file.display().to_string()))
}

/// Those of `pictures` that are there, with their titles.
fn show(page: &mut String, pictures: &[(&str, &str)], folder: &Path) {
    for (file, title) in pictures.iter().filter(|(file, _)| folder.join(file).exists()) {
        // Writing into memory does not fail.
        let _ = write!(page, "\n{title}:\n\n![{title}]({FOLDER}/{file})\n");
    }
}

/// The page without its plots.
pub(crate) fn render(table: &Table) -> String {
    let mut page = HEAD.to_owned();
    let today = time::OffsetDateTime::now_utc().date();
    let minutes = table.took.as_secs_f64() / 60.0;
    let _ = writeln!(
        page,
        "\n## {today}: {} rounds of {} s each, {minutes:.0} minutes in all",
        table.rounds, table.seconds
    );
    page += "\n| machine | |\n|---|---|\n";
    let _ = writeln!(page, "| profile of all that is built | `{}` |", table.profile);
    for (name, value) in &table.facts {
        let _ = writeln!(page, "| {name} | {value} |");
    }
    page += "\n| workload | contender | a second | p50 ms | p99 ms | rate x | p99 x |\n";
    page += "|---|---|---:|---:|---:|---:|---:|\n";
    for group in table.groups() {
        for row in group {
            page += &line(row, &group[0]);
        }
    }
    let drains = table.groups().filter_map(|group| {
        let drain = group[0].series.drain_s.median();
        drain.is_finite().then(|| format!("{drain:.2} s ({})", group[0].workload))
    });
    let drains: Vec<_> = drains.collect();
    if !drains.is_empty() {
        let _ = writeln!(
            page,
            "\nFrom Sluice's last answer to the last order in SQLite, median: {}.",
            drains.join("; ")
        );
    }
    page + &render_costs(&table.costs)
}

/// What opens the table of costs.
const COSTS_HEAD: &str = "
## What a purchase costs

Growth from a server at rest to the same at rest again, divided by the purchases accepted: processor
time of all its processes, their resident memory, bytes of the log (Sluice's own, `appendonlydir` of
Valkey). On Sluice an order of each purchase in SQLite is included; the others make none, but for
MariaDB. Memory that a server takes once, whatever it sells, is in it too and weighs on the
contenders that sold little. The first reading is taken before the sale is created, so what Sluice
makes ahead for it counts, be it sold or not.

| workload | contender | processor us | memory bytes | log bytes | processor x |
|---|---|---:|---:|---:|---:|
";

fn render_costs(costs: &[CostRow]) -> String {
    if costs.is_empty() {
        return String::new();
    }
    let mut table = COSTS_HEAD.to_owned();
    for group in costs.chunk_by(|one, other| one.workload == other.workload) {
        for row in group {
            let is_first = std::ptr::eq(row, &group[0]);
            let ratio = row.series.processor_us.median() / group[0].series.processor_us.median();
            // Writing into memory does not fail.
            let _ = writeln!(
                table,
                "| {} | {} | {} | {} | {} | {} |",
                if is_first { row.workload } else { "" },
                row.contender,
                figure(&row.series.processor_us, 2),
                figure(&row.series.resident_bytes, 0),
                figure(&row.series.log_bytes, 0),
                if is_first { String::new() } else { format!("{ratio:.1}") },
            );
        }
    }
    table
}

/// A median with its range; nothing where there is none.
fn figure(spread: &Spread, digits: usize) -> String {
    let (low, high) = spread.range();
    if !low.is_finite() {
        return String::new();
    }
    format!("{:.digits$} ({low:.digits$} to {high:.digits$})", spread.median())
}

fn line(row: &Row, first: &Row) -> String {
    let is_first = std::ptr::eq(row, first);
    let ratio = |of: fn(&Series) -> &Spread| {
        let ratio = of(&first.series).median() / of(&row.series).median();
        if is_first || !ratio.is_finite() { String::new() } else { format!("{ratio:.2}") }
    };
    let Row { workload, contender, series } = row;
    format!(
        "| {} | {contender} | {} | {} | {} | {} | {} |\n",
        if is_first { workload } else { "" },
        rate(&series.per_second),
        latency(&series.p50_us),
        latency(&series.p99_us),
        ratio(|series| &series.per_second),
        ratio(|series| &series.p99_us),
    )
}

fn rate(spread: &Spread) -> String {
    let (low, high) = spread.range();
    format!("**{}** ({} to {})", thousands(spread.median()), thousands(low), thousands(high))
}

fn latency(spread: &Spread) -> String {
    let (low, high) = spread.range();
    if !low.is_finite() {
        return String::new();
    }
    let digits = if spread.median() < 1_000.0 { 3 } else { 2 };
    let ms = |us: f64| format!("{:.digits$}", us / 1_000.0);
    format!("{} ({} to {})", ms(spread.median()), ms(low), ms(high))
}

/// A whole number with its thousands apart.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(per_second: f64, p99_us: f64) -> Series {
        let mut series = Series::default();
        series.per_second.push(per_second);
        series.p50_us.push(p99_us / 2.0);
        series.p99_us.push(p99_us);
        series
    }

    #[test]
    fn a_contender_stands_below_sluice_with_its_ratios() {
        let rows = vec![
            Row::new("a load", "Sluice", series(800_000.0, 500.0)),
            Row::new("a load", "another", series(20_000.0, 5_000.0)),
        ];
        let table = Table {
            rows,
            costs: Vec::new(),
            rounds: 1,
            seconds: 1,
            profile: "dist".to_owned(),
            facts: vec![("cores", "2".to_owned())],
            took: Duration::from_secs(90),
        };
        let page = render(&table);
        let lines: Vec<_> = page.lines().filter(|line| line.contains("| **")).collect();
        assert_eq!(
            lines,
            [
                "| a load | Sluice | **800,000** (800,000 to 800,000) | 0.250 (0.250 to 0.250) | \
                 0.500 (0.500 to 0.500) |  |  |",
                "|  | another | **20,000** (20,000 to 20,000) | 2.50 (2.50 to 2.50) | \
                 5.00 (5.00 to 5.00) | 40.00 | 0.10 |",
            ]
        );
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in
            [(0.4, "0"), (999.0, "999"), (1e3, "1,000"), (12_345_678.0, "12,345,678")]
        {
            assert_eq!(thousands(number), text);
        }
    }
}
