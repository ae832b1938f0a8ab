//! The code and docs/invariants.md name the same invariants.
//!
//! The document has a row for each, `| W5 | what it says | asserted in | held by |`. A row whose
//! third column says "not in this version" must not be named in code yet; any other must be.

use std::collections::BTreeMap;

use super::Problem;
use super::mask::is_name;
use super::tree::Tree;

const DOCUMENT: &str = "docs/invariants.md";
const ABSENT: &str = "not in this version";

/// Where an invariant stands, as the document has it.
struct Row {
    line: usize,
    is_absent: bool,
}

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let rows = tree.file(DOCUMENT).map(|file| rows(&file.text)).unwrap_or_default();
    let named = named(tree);
    let mut problems = Vec::new();
    for (number, (path, line)) in &named {
        match rows.get(number) {
            None => {
                let message = format!("W{number} is not listed in {DOCUMENT}");
                problems.push(Problem::at(path, *line, message));
            }
            Some(row) if row.is_absent => {
                let message = format!("says W{number} is {ABSENT}, but {path}:{line} names it");
                problems.push(Problem::at(DOCUMENT, row.line, message));
            }
            Some(_) => {}
        }
    }
    for (number, row) in
        rows.iter().filter(|(number, row)| !row.is_absent && !named.contains_key(number))
    {
        let message = format!("lists W{number}, which no code names");
        problems.push(Problem::at(DOCUMENT, row.line, message));
    }
    problems
}

fn rows(document: &str) -> BTreeMap<u32, Row> {
    let mut rows = BTreeMap::new();
    for (index, line) in document.lines().enumerate() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let Some(number) = cells.next().and_then(|cell| invariants(cell).next()) else { continue };
        let is_absent = cells.nth(1).is_some_and(|cell| cell.starts_with(ABSENT));
        rows.insert(number, Row { line: index + 1, is_absent });
    }
    rows
}

/// This file names invariants that it only plays with.
const SELF: &str = "xtask/src/tidy/invariants.rs";

/// The first place that names each invariant.
fn named(tree: &Tree) -> BTreeMap<u32, (&str, usize)> {
    let mut named = BTreeMap::new();
    for (file, _) in tree.rust().filter(|(file, _)| file.path != SELF) {
        for (index, line) in file.text.lines().enumerate() {
            for number in invariants(line) {
                named.entry(number).or_insert((file.path.as_str(), index + 1));
            }
        }
    }
    named
}

/// The numbers in `W1`, `W17`: a capital W and one or two digits, standing alone.
fn invariants(line: &str) -> impl Iterator<Item = u32> {
    line.split(|c: char| !c.is_ascii() || !u8::try_from(c).is_ok_and(is_name)).filter_map(|word| {
        let digits = word.strip_prefix('W').filter(|digits| digits.len() <= 2)?;
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(document: &str, code: &str) -> Vec<String> {
        let tree = Tree::of(&[(DOCUMENT, document), ("wal/src/lib.rs", code)]);
        check(&tree).into_iter().map(|problem| problem.to_string()).collect()
    }

    #[test]
    fn code_and_document_name_the_same() {
        let document =
            "| W5 | never rewritten | x | y |\n| W13 | mirror | not in this version | |\n";
        assert!(problems(document, "// W5: never rewritten\n").is_empty());
    }

    #[test]
    fn an_invariant_missing_on_either_side_is_found() {
        assert_eq!(
            problems("", "// W5\n"),
            ["wal/src/lib.rs:1: W5 is not listed in docs/invariants.md"]
        );
        let document = "| W5 | never rewritten | x | y |\n";
        assert_eq!(problems(document, ""), ["docs/invariants.md:1: lists W5, which no code names"]);
    }

    #[test]
    fn an_invariant_that_has_arrived_may_not_be_called_absent() {
        let document = "| W13 | mirror | not in this version | |\n";
        assert_eq!(problems(document, "// W13\n").len(), 1);
    }

    #[test]
    fn only_whole_names_count() {
        assert_eq!(invariants("W1, (W17) W3C W100 xW2 W").collect::<Vec<_>>(), [1, 17]);
    }
}
