//! Which modules, crates and words a room may not name in its code. Tests may name anything.

use super::Problem;
use super::paths::named;
use super::tree::{File, Tree};

/// What the code under a folder may not name.
struct Rule {
    under: &'static str,
    /// The part of that folder that is there for it.
    but_for: Option<&'static str>,
    names: &'static [&'static str],
    reason: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        under: "wal/src/",
        but_for: Some("wal/src/device/"),
        names: &["std::fs", "std::os::unix::fs", "rustix::fs"],
        reason: "the device is the one seam to the operating system: what goes past it, no \
                 simulated crash can reach",
    },
    Rule {
        under: "engine/src/core/",
        but_for: None,
        names: &[
            "std::time",
            "std::fs",
            "std::thread",
            "std::net",
            "std::env",
            "std::process",
            "rand",
            "tokio",
        ],
        reason: "the core is pure (W15): replay must decide and apply as the live run did",
    },
    Rule {
        under: "engine/src/core/",
        but_for: None,
        names: &[
            "std::collections::HashMap",
            "std::collections::HashSet",
            "std::collections::hash_map",
            "std::hash::RandomState",
        ],
        reason: "their order differs from run to run (W15): use a BTreeMap or a fixed hasher",
    },
    Rule {
        under: "engine/src/",
        but_for: None,
        names: &["std::net", "tokio", "socket2", "hyper", "axum", "sqlx"],
        reason: "the engine has no sockets, no SQL and no runtime of its own",
    },
    Rule {
        under: "bridge/src/",
        but_for: None,
        names: &["axum", "hyper", "socket2"],
        reason: "the bridge never sees a request",
    },
];

/// Words of the shop, which the log must not know: it carries bytes.
const SHOP_WORDS: &[&str] = &[
    "activity",
    "activities",
    "buyer",
    "payment",
    "payments",
    "price",
    "purchase",
    "purchases",
    "reservation",
    "reservations",
    "shopper",
    "sku",
    "skus",
    "stock",
    "stocks",
];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, rust) in tree.rust() {
        let rules: Vec<&Rule> = RULES.iter().filter(|rule| rule.covers(&file.path)).collect();
        if !rules.is_empty() {
            for name in named(&rust.masks.code) {
                let broken = |rule: &&&Rule| rule.names.iter().any(|module| name.is_within(module));
                for rule in rules.iter().filter(broken).filter(|_| !rust.is_test_line(name.line)) {
                    let message = format!("names {}: {}", name.path, rule.reason);
                    problems.push(Problem::at(&file.path, name.line, message));
                }
            }
        }
        if file.path.starts_with("wal/src/") {
            problems.extend(check_shop_words(file));
        }
    }
    problems
}

impl Rule {
    fn covers(&self, path: &str) -> bool {
        path.starts_with(self.under) && !self.but_for.is_some_and(|part| path.starts_with(part))
    }
}

/// Looks into the names and texts of the code; comments may give examples.
fn check_shop_words(file: &File) -> Vec<Problem> {
    let Some(rust) = &file.rust else { return Vec::new() };
    let mut problems = Vec::new();
    for (line, code) in rust.production(&rust.masks.uncommented) {
        for word in words(code).filter(|word| SHOP_WORDS.contains(&word.as_str())) {
            let message = format!("says \"{word}\": the log carries bytes and knows nothing of it");
            problems.push(Problem::at(&file.path, line, message));
        }
    }
    problems
}

/// The words of names and texts, lower case: `ActivityId` and `activity_id` are both two words.
fn words(code: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(code.len());
    let mut before = ' ';
    for c in code.chars() {
        if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
            spaced.push(' ');
        }
        spaced.push(if c.is_ascii_alphabetic() { c.to_ascii_lowercase() } else { ' ' });
        before = c;
    }
    spaced.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn files_are_opened_only_by_the_device() {
        let text = "fn f() {}\nuse std::{fs, io};\n";
        assert_eq!(lines("wal/src/lock.rs", text), [2]);
        assert!(lines("wal/src/device/posix.rs", text).is_empty());
        assert_eq!(lines("wal/src/lock.rs", "use rustix::fs::fdatasync;\n"), [1]);
        assert_eq!(lines("wal/src/lock.rs", "use std::*;\n"), [1]);
    }

    #[test]
    fn the_core_names_no_clock_thread_file_or_random_order() {
        for name in [
            "std::time::Instant",
            "std::fs::read",
            "std::thread::spawn",
            "std::net::TcpStream",
            "rand::random",
            "tokio::spawn",
            "std::collections::HashMap::new",
        ] {
            let text = format!("fn f() {{\n    {name}();\n}}\n");
            assert!(!lines("engine/src/core/decide.rs", &text).is_empty(), "{name}");
        }
        assert_eq!(
            lines("engine/src/core/decide.rs", "use std::collections::{BTreeMap, HashMap};"),
            [1]
        );
        assert!(lines("engine/src/core/decide.rs", "use std::collections::BTreeMap;\n").is_empty());
    }

    #[test]
    fn the_runtime_may_have_threads_but_no_sockets() {
        assert!(lines("engine/src/runtime/mod.rs", "use std::thread;\n").is_empty());
        assert_eq!(lines("engine/src/runtime/mod.rs", "use std::net::TcpStream;\n"), [1]);
        assert_eq!(lines("bridge/src/lib.rs", "use axum::Router;\n"), [1]);
    }

    #[test]
    fn tests_and_comments_may_name_anything() {
        let text = "// std::fs\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert!(lines("wal/src/lock.rs", text).is_empty());
        assert!(lines("engine/tests/model_based.rs", "use std::net::TcpStream;\n").is_empty());
    }

    #[test]
    fn the_log_does_not_speak_of_the_shop() {
        for code in ["struct ActivityId;", "let stock_left = 1;", "f(\"the reservation's\");"] {
            assert_eq!(lines("wal/src/record.rs", &format!("// stock\n{code}\n")), [2], "{code}");
        }
        assert!(lines("wal/src/record.rs", "buffer.reserve(stockpile);\n").is_empty());
        assert!(lines("engine/src/core/apply.rs", "let stock = 1;\n").is_empty());
    }
}
