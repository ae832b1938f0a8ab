//! The rules of the house that no compiler knows.
//!
//! | check | holds |
//! |---|---|
//! | [`dependencies`] | who may depend on whom, read from each crate's manifest |
//! | [`names`] | which crates, modules and words a room may not name in its code |
//! | [`size`] | lines, functions and files stay small; exceptions are listed with reasons |
//! | [`words`] | no leftovers, no machine's paths, no registry's hosts, ASCII code |
//! | [`links`] | links in Markdown lead somewhere; a guarantee's link leads to a test |
//! | [`invariants`] | docs/invariants.md and the code name the same invariants |
//! | [`rendered`] | pages that repeat a source file's opening repeat what it says now |
//!
//! Each check is a function from a [`Tree`] in memory to the [`Problem`]s in it, so that its own
//! tests can plant what it must find: a check that cannot fail is worth nothing.

mod dependencies;
mod invariants;
mod links;
mod mask;
mod names;
mod paths;
mod rendered;
mod rust;
mod size;
mod tree;
mod words;

use std::fmt;

use crate::failure::Failure;
use tree::Tree;

/// A place where the tree breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Problem {
    /// The file, from the repository's root.
    path: String,
    /// The line, from 1; 0 for the file as a whole.
    line: usize,
    /// What is wrong, and what to do instead.
    message: String,
}

impl Problem {
    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// For each line of a Rust file, whether it belongs to a test.
pub(crate) fn test_lines(path: &str, text: &str) -> Vec<bool> {
    rust::Rust::new(path, text).is_test
}

/// Checks the working tree and prints every problem.
///
/// # Errors
/// [`Failure::Untidy`] where there is one, [`Failure::Io`] where the tree cannot be read.
pub(crate) fn run() -> Result<(), Failure> {
    let tree = Tree::read()?;
    let mut problems = check(&tree);
    problems.sort();
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => {
            size::EXCEPTIONS.iter().for_each(|exception| println!("tidy: {exception}"));
            println!("tidy: {} files, nothing to mend", tree.files.len());
            Ok(())
        }
        problems => Err(Failure::Untidy { problems }),
    }
}

/// Writes the parts of the documentation that are rendered from source files.
///
/// # Errors
/// [`Failure::Io`] where the tree cannot be read or a page not be written.
pub(crate) fn render_docs() -> Result<(), Failure> {
    let tree = Tree::read()?;
    for page in rendered::pages(&tree) {
        let text = rendered::render(page, &tree);
        if text != page.text {
            println!("rendered {}", page.path);
            std::fs::write(&page.path, text)
                .map_err(|source| Failure::Io { what: "write a page", source })?;
        }
    }
    Ok(())
}

fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = dependencies::check(tree);
    problems.extend(names::check(tree));
    problems.extend(size::check(tree, size::EXCEPTIONS));
    problems.extend(words::check(tree));
    problems.extend(links::check(tree));
    problems.extend(invariants::check(tree));
    problems.extend(rendered::check(tree));
    problems
}
