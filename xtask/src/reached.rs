//! What of the source the tests reach, from what `llvm-cov export` prints.
//!
//! What belongs to tests is left out, what only a planted fault enters, and the way that an
//! assertion takes where it is broken: no test of the product can go there.
//!
//! Its own summary takes, of a function that was built several times (with and without its tests,
//! generic over several types), the build that was reached most. Here a place is reached where any
//! build of it is: what the unit tests leave out and a campaign meets is met.

use std::collections::BTreeMap;

use crate::tidy;

/// A place in a source file: its first and last line and column.
type Span = [u64; 4];

/// What is reached of a file, by place.
#[derive(Default)]
pub(crate) struct File {
    /// Regions, and how often each was entered.
    regions: BTreeMap<Span, u64>,
    /// Branches, and how often each was taken: when true, when false.
    branches: BTreeMap<Span, [u64; 2]>,
}

/// How many there are, and how many were never met.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    pub(crate) all: u64,
    pub(crate) missed: u64,
}

impl Share {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { all: self.all + other.all, missed: self.missed + other.missed }
    }

    /// How many of a thousand are met, rounded down; all of none.
    pub(crate) fn per_mille(self) -> u64 {
        ((self.all - self.missed) * 1_000).checked_div(self.all).unwrap_or(1_000)
    }
}

impl File {
    /// Its regions.
    pub(crate) fn regions(&self) -> Share {
        let missed = self.regions.values().filter(|count| **count == 0).count();
        Share { all: self.regions.len() as u64, missed: missed as u64 }
    }

    /// Its branches: two at each place.
    pub(crate) fn branches(&self) -> Share {
        let ways = || self.branches.values().flatten();
        let missed = ways().filter(|count| **count == 0).count();
        Share { all: ways().count() as u64, missed: missed as u64 }
    }

    /// Forgets what begins in a line that is `excused`.
    pub(crate) fn leave_out(&mut self, excused: &[bool]) {
        let is_excused = |line: &u64| {
            let index = usize::try_from(*line).ok().and_then(|line| line.checked_sub(1));
            index.and_then(|index| excused.get(index)).copied().unwrap_or(false)
        };
        self.regions.retain(|[line, ..], _| !is_excused(line));
        self.branches.retain(|[line, ..], _| !is_excused(line));
    }

    /// The lines and columns of what was never met, each with what never happened there.
    pub(crate) fn missed(&self) -> Vec<(u64, u64, &'static str)> {
        let regions = self.regions.iter().filter(|(_, count)| **count == 0);
        let mut missed: Vec<_> =
            regions.map(|([line, column, ..], _)| (*line, *column, "never entered")).collect();
        for ([line, column, ..], ways) in &self.branches {
            for (count, what) in ways.iter().zip(["never true", "never false"]) {
                if *count == 0 {
                    missed.push((*line, *column, what));
                }
            }
        }
        missed.sort_unstable();
        missed
    }
}

/// For each line of a file, whether nothing is asked of its tests there.
pub(crate) fn excused(path: &str, text: &str) -> Vec<bool> {
    let mut excused = tidy::test_lines(path, text);
    let mut is_asserting = false;
    let mut planted_end: Option<String> = None;
    for (line, is_excused) in text.lines().zip(&mut excused) {
        let code = line.trim();
        // The block that only a planted fault enters, up to the brace under its `if`.
        *is_excused |= planted_end.is_some();
        planted_end = planted_end.filter(|end| !line.starts_with(end.as_str()));
        if code.starts_with("if planted::has(") && code.ends_with('{') && !code.contains("||") {
            planted_end = line.split_once("if").map(|(indent, _)| format!("{indent}}}"));
        }
        let words = ["assert!(", "assert_eq!(", "assert_ne!(", "debug_assert!("];
        is_asserting |= words.iter().any(|word| code.starts_with(word));
        *is_excused |= is_asserting || code.contains("planted::has(");
        is_asserting &= !(code.ends_with(");") || code == "}");
    }
    excused
}

/// Kind of a region of code, as LLVM numbers them.
const CODE: u64 = 0;

/// The files that are `wanted`, by path. `None` where `exported` is not what it was taken for.
pub(crate) fn files(
    exported: &str,
    wanted: impl Fn(&str) -> bool,
) -> Option<BTreeMap<String, File>> {
    let mut files: BTreeMap<String, File> = BTreeMap::new();
    let (_, functions) = exported.split_once("\"functions\":[")?;
    let (functions, _) = functions.split_once("\"totals\":")?;
    for function in functions.split("{\"branches\":").skip(1) {
        let (branches, rest) = rows(function)?;
        let (_, rest) = rest.split_once("\"filenames\":[")?;
        let (names, rest) = rest.split_once(']')?;
        let names: Vec<&str> = names.split(',').map(|name| name.trim_matches('"')).collect();
        let (_, rest) = rest.split_once("\"regions\":")?;
        let (regions, _) = rows(rest)?;
        let name = |index: u64| {
            let name = names.get(usize::try_from(index).ok()?).copied();
            name.filter(|name| wanted(name))
        };
        for row in regions {
            let &[a, b, c, d, count, index, _, kind] = row.as_slice() else { return None };
            if let Some(name) = name(index).filter(|_| kind == CODE) {
                let file = files.entry(name.to_owned()).or_default();
                *file.regions.entry([a, b, c, d]).or_default() += count.min(1);
            }
        }
        for row in branches {
            let &[a, b, c, d, when_true, when_false, index, ..] = row.as_slice() else {
                return None;
            };
            if let Some(name) = name(index) {
                let file = files.entry(name.to_owned()).or_default();
                let ways = file.branches.entry([a, b, c, d]).or_default();
                ways[0] += when_true.min(1);
                ways[1] += when_false.min(1);
            }
        }
    }
    Some(files)
}

/// Rows of numbers, `[[1,2],[3,4]]` at the beginning of `text`, and what follows them.
fn rows(text: &str) -> Option<(Vec<Vec<u64>>, &str)> {
    let text = text.strip_prefix('[')?;
    let (inside, rest) = match text.strip_prefix(']') {
        Some(rest) => return Some((Vec::new(), rest)),
        None => text.split_once("]]")?,
    };
    let row = |row: &str| row.trim_matches(['[', ',']).split(',').map(read).collect();
    let rows: Option<Vec<Vec<u64>>> = inside.split("],").map(row).collect();
    Some((rows?, rest))
}

/// A number, or the yes or no that newer versions write behind the numbers of a branch.
fn read(text: &str) -> Option<u64> {
    match text {
        "true" => Some(1),
        "false" => Some(0),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORTED: &str = r#"{"data":[{"files":[],"functions":[
        {"branches":[[2,5,2,9,0,3,0,0,4]],"count":3,"filenames":["/x/wal/src/a.rs"],
         "mcdc_records":[],"name":"one","regions":[[1,1,4,2,3,0,0,0],[3,1,3,9,0,0,0,0]]},
        {"branches":[[2,5,2,9,1,0,0,0,4]],"count":1,"filenames":["/x/wal/src/a.rs"],
         "mcdc_records":[],"name":"two","regions":[[1,1,4,2,1,0,0,0],[5,1,5,9,0,0,0,0]]},
        {"branches":[],"count":0,"filenames":["/y/other.rs"],
         "mcdc_records":[],"name":"three","regions":[[1,1,1,2,0,0,0,0]]}],
         "totals":{"branches":{"count":4,"covered":1}}}]}"#;

    #[test]
    fn a_place_is_reached_where_any_build_of_it_is() {
        let exported: String = EXPORTED.split_whitespace().collect();
        let files = files(&exported, |name| name.contains("/wal/src/")).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["/x/wal/src/a.rs"]);
        let file = &files["/x/wal/src/a.rs"];
        assert_eq!(file.regions(), Share { all: 3, missed: 2 });
        assert_eq!(file.branches(), Share { all: 2, missed: 0 });
        assert_eq!(file.missed(), [(3, 1, "never entered"), (5, 1, "never entered")]);
    }

    #[test]
    fn tests_planted_faults_and_broken_assertions_are_left_out() {
        let text = "fn f() {
    assert!(
        a && b,
        \"c\"
    );
    g();
    if planted::has(Bug::X) {}
    if planted::has(Bug::Y) && a {
        h();
    }
    if !planted::has(Bug::Z) {
        i();
    }
}
#[cfg(test)]
mod tests {
    fn t() {}
}
";
        let lines = excused("wal/src/x.rs", text);
        let left: Vec<_> = (1..).zip(&lines).filter(|(_, is)| !**is).map(|(at, _)| at).collect();
        assert_eq!(left, [1, 6, 12, 13, 14]);
        let mut file = File::default();
        file.regions.extend([([3, 1, 3, 2], 0), ([6, 1, 6, 2], 0), ([17, 1, 17, 2], 0)]);
        file.branches.insert([7, 8, 7, 9], [0, 1]);
        file.leave_out(&lines);
        assert_eq!(file.missed(), [(6, 1, "never entered")]);
    }

    #[test]
    fn what_is_no_export_is_not_read_as_nothing_missed() {
        for text in ["", "{}", r#"{"functions":[{"branches":7,"filenames":["a"]}]}"#] {
            let found = files(text, |_| true);
            assert!(found.is_none(), "{text}");
        }
    }

    #[test]
    fn shares_round_down() {
        assert_eq!(Share { all: 3, missed: 1 }.per_mille(), 666);
        assert_eq!(Share::default().per_mille(), 1_000);
    }
}
