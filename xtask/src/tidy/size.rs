//! Small files, small functions, short lines: what fits a screen can be read and reviewed.
//!
//! A ratchet: a place may exceed a limit only by an entry in [`EXCEPTIONS`] with its reason, and
//! an entry that is no longer needed is itself a problem.

use std::fmt;

use super::Problem;
use super::rust::{Rust, body, closing, line_of, word_places};
use super::tree::{File, Tree};

/// Lines of a file, its tests aside.
const FILE_LINES_MAX: usize = 400;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Characters of a line: rustfmt's width, which it cannot keep inside texts and macros.
const LINE_CHARACTERS_MAX: usize = 100;

/// A place that may exceed a limit.
pub(super) struct Exception {
    path: &'static str,
    /// The function that may be long; `None` for the file as a whole.
    function: Option<&'static str>,
    /// Why it is better as it is.
    reason: &'static str,
}

impl Exception {
    fn excuses(&self, path: &str, function: Option<&str>) -> bool {
        self.path == path && self.function == function
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.function.map(|name| format!(" fn {name}")).unwrap_or_default();
        write!(f, "{}{place} may be long: {}", self.path, self.reason)
    }
}

/// Every exception, with its reason.
pub(super) const EXCEPTIONS: &[Exception] = &[
    Exception {
        path: "engine/tests/event_codec.rs",
        function: Some("bodies"),
        reason: "a table: one example of every kind of event",
    },
    Exception {
        path: "engine/tests/whole_event_set.rs",
        function: Some("an_event_that_cannot_have_happened_is_refused_and_changes_nothing"),
        reason: "a table: every way in which an event can contradict the state",
    },
];

pub(super) fn check(tree: &Tree, exceptions: &[Exception]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut used = vec![false; exceptions.len()];
    for (file, rust) in tree.rust() {
        problems.extend(check_lines(file));
        let oversized = check_functions(file, rust).into_iter().chain(check_file(file, rust));
        for (function, problem) in oversized {
            let excuse = |exception: &Exception| exception.excuses(&file.path, function.as_deref());
            match exceptions.iter().position(excuse) {
                Some(index) => used[index] = true,
                None => problems.push(problem),
            }
        }
    }
    for (exception, _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        let message = "an exception in xtask/src/tidy/size.rs is no longer needed: remove it";
        problems.push(Problem::at(exception.path, 0, message));
    }
    problems
}

/// A place over a limit: the function's name, `None` for the file, and what to say of it.
type Oversized = (Option<String>, Problem);

fn check_lines(file: &File) -> Vec<Problem> {
    let width = |line: &str| line.chars().count();
    let long = file.text.lines().enumerate().filter(|(_, line)| width(line) > LINE_CHARACTERS_MAX);
    long.map(|(index, line)| {
        let message = format!("{} columns: at most {LINE_CHARACTERS_MAX}", width(line));
        Problem::at(&file.path, index + 1, message)
    })
    .collect()
}

fn check_file(file: &File, rust: &Rust) -> Option<Oversized> {
    let lines = rust.is_test.iter().filter(|is_test| !**is_test).count();
    let message = format!("{lines} lines beside its tests: at most {FILE_LINES_MAX}; split it");
    let problem = Problem::at(&file.path, 0, message);
    (lines > FILE_LINES_MAX).then_some((None, problem))
}

fn check_functions(file: &File, rust: &Rust) -> Vec<Oversized> {
    let code = rust.masks.code.as_str();
    let mut found = Vec::new();
    for at in word_places(code, "fn") {
        // A pointer type, `fn(u8)`, has no name, and a declaration no body.
        let Some(name) = name_after(code, at + 2) else { continue };
        let Some(open) = body(code.as_bytes(), at) else { continue };
        let first = line_of(code.as_bytes(), at);
        let last = line_of(code.as_bytes(), closing(code.as_bytes(), open) - 1);
        let lines = last - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let message = format!("fn {name} has {lines} lines: at most {FUNCTION_LINES_MAX}");
            let problem = Problem::at(&file.path, first, message);
            found.push((Some(name.to_owned()), problem));
        }
    }
    found
}

fn name_after(code: &str, at: usize) -> Option<&str> {
    let rest = code.get(at..)?.trim_start();
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "wal/src/frame.rs";

    fn problems(text: &str, exceptions: &[Exception]) -> Vec<Problem> {
        check(&Tree::of(&[(PATH, text)]), exceptions)
    }

    fn function(lines: usize) -> String {
        format!("fn long(x: fn(u8)) -> u8 {{\n{}}}\n", "    f(\"{\");\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_function_is_found() {
        assert!(problems(&function(70), &[]).is_empty());
        let found = problems(&format!("\n{}", function(71)), &[]);
        assert_eq!((found.len(), found[0].line), (1, 2));
        assert!(found[0].message.contains("fn long has 71 lines"), "{}", found[0]);
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_are_not_counted() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // a\n".repeat(500));
        assert!(problems(&("// a\n".repeat(400) + &tests), &[]).is_empty());
        assert_eq!(problems(&"// a\n".repeat(401), &[]).len(), 1);
    }

    #[test]
    fn a_long_line_is_found_by_its_characters() {
        assert!(problems(&"\u{e9}".repeat(100), &[]).is_empty());
        assert_eq!(problems(&"x".repeat(101), &[]).len(), 1);
    }

    #[test]
    fn an_exception_excuses_its_place_alone() {
        let exceptions = [Exception { path: PATH, function: Some("long"), reason: "test" }];
        assert!(problems(&function(71), &exceptions).is_empty());
        let other = function(71).replace("long", "other");
        assert_eq!(problems(&other, &exceptions).len(), 2, "the place, and the unused exception");
    }

    #[test]
    fn an_exception_that_is_not_needed_is_found() {
        let exceptions = [Exception { path: PATH, function: None, reason: "test" }];
        let found = problems("fn f() {}\n", &exceptions);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("no longer needed"));
    }

    #[test]
    fn every_exception_says_why() {
        assert!(EXCEPTIONS.iter().all(|exception| !exception.reason.is_empty()));
    }
}
