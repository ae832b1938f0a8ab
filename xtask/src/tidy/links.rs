//! Links in Markdown lead somewhere, and what they name is there.
//!
//! A link whose text is a name in code, to a Rust file, must find that name in the file. In the
//! README's table of guarantees every row needs such a link, and it must lead to a test: a
//! promise without a test that holds it is a wish.

use super::Problem;
use super::rust::word_places;
use super::tree::{File, Tree};

/// The heading over the README's table of guarantees.
const GUARANTEES: &str = "Guarantees";

/// One link of a Markdown file.
struct Link<'a> {
    text: &'a str,
    target: &'a str,
    line: usize,
}

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for link in links(&file.text) {
            if let Some(message) = broken(tree, file, &link) {
                problems.push(Problem::at(&file.path, link.line, message));
            }
        }
        if file.path == "README.md" {
            problems.extend(check_guarantees(tree, file));
        }
    }
    problems
}

/// What is wrong with a link, if anything. Links to the web are not followed.
fn broken(tree: &Tree, file: &File, link: &Link<'_>) -> Option<String> {
    if link.target.contains("://") || link.target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.target.split_once('#').unwrap_or((link.target, ""));
    let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
    if !tree.has(&path) {
        return Some(format!("the link to {} leads nowhere", link.target));
    }
    let target = tree.file(&path)?;
    if !anchor.is_empty() && !headings(&target.text).any(|heading| slug(heading) == anchor) {
        return Some(format!("{path} has no heading #{anchor}"));
    }
    let name = quoted_name(link.text).filter(|_| target.rust.is_some())?;
    let rust = target.rust.as_ref()?;
    word_places(&rust.masks.uncommented, name)
        .is_empty()
        .then(|| format!("{path} does not name `{name}`"))
}

fn check_guarantees(tree: &Tree, readme: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut is_within = false;
    for (index, line) in readme.text.lines().enumerate() {
        if let Some(heading) = heading(line) {
            is_within = heading == GUARANTEES;
        }
        if !is_within || !is_row(readme, index) {
            continue;
        }
        let mut tests = links(line).into_iter().filter(|link| quoted_name(link.text).is_some());
        let mut say = |message: String| {
            problems.push(Problem::at(&readme.path, index + 1, message));
        };
        let Some(first) = tests.next() else {
            say("this guarantee links to no test".to_owned());
            continue;
        };
        for link in std::iter::once(first).chain(tests).filter(|link| !is_test(tree, link)) {
            say(format!("{} is no test in {}", link.text, link.target));
        }
    }
    problems
}

/// A row of a table, below its head and the rule under the head.
fn is_row(file: &File, index: usize) -> bool {
    let line = |index: usize| file.text.lines().nth(index).unwrap_or_default();
    let is_rule = |line: &str| line.starts_with("|-") || line.starts_with("| -");
    line(index).starts_with('|') && !is_rule(line(index)) && !is_rule(line(index + 1))
}

/// The macro that makes of each function it lists one test a database.
const TESTS_MACRO: &str = "on_each_database!(";

/// True where the link leads to a function of that name among a file's tests.
fn is_test(tree: &Tree, link: &Link<'_>) -> bool {
    let Some(name) = quoted_name(link.text) else { return false };
    let Some(rust) = tree.file(link.target).and_then(|file| file.rust.as_ref()) else {
        return false;
    };
    let code = rust.masks.code.as_str();
    word_places(code, name).into_iter().any(|at| {
        let list = code[..at].rfind(TESTS_MACRO);
        if list.is_some_and(|start| !code[start..at].contains(')')) {
            return true;
        }
        let before = code[..at].trim_end();
        let Some(before) = before.strip_suffix("fn") else { return false };
        // The attributes between the item before and this one.
        let start = before.rfind(['}', ';', '{']).map_or(0, |at| at + 1);
        let attributes: String = before[start..].split_whitespace().collect();
        attributes.contains("#[test]") || attributes.contains("#[tokio::test")
    })
}

/// The name in a link's text such as `` `a_torn_tail_is_cut` ``.
fn quoted_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix('`')?.strip_suffix('`')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// The links of a text, those in code blocks aside.
fn links(text: &str) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            let (before, after) = (&rest[..at], &rest[at + 2..]);
            let Some(end) = after.find(')') else { break };
            if let Some(start) = before.rfind('[') {
                let target = after[..end].trim();
                found.push(Link { text: &before[start + 1..], target, line: index + 1 });
            }
            rest = &after[end..];
        }
    }
    found
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    prose(text).filter_map(|(_, line)| heading(line))
}

fn heading(line: &str) -> Option<&str> {
    line.starts_with('#').then(|| line.trim_start_matches('#').trim())
}

/// The lines outside fenced code, with their index.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// The anchor of a heading, as forges make it.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// `target` as seen from the file at `path`, from the repository's root.
fn resolve(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: (&str, &str) = (
        "wal/src/lib.rs",
        "fn helper() {}\n#[test]\nfn a_claim() {}\non_each_database!(listed);\n",
    );

    fn lines(files: &[(&str, &str)]) -> Vec<usize> {
        check(&Tree::of(files)).into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn a_link_must_lead_to_a_file_a_folder_or_a_heading() {
        let docs = ("docs/format.md", "# The frame\n[up](../README.md) [it](#the-frame)\n");
        let readme = ("README.md", "[a](docs/format.md#the-frame) [b](docs) [c](https://x.y)\n");
        assert!(lines(&[readme, docs]).is_empty());
        for bad in ["[a](docs/forma.md)", "[a](docs/format.md#frame)", "[a](../README.md)"] {
            let files = [("docs/x.md", bad), docs];
            assert_eq!(lines(&files), [1, 2], "{bad}: docs/format.md links to a README too");
        }
        assert!(lines(&[("README.md", "```\n[a](nowhere)\n```\n")]).is_empty());
    }

    #[test]
    fn a_name_in_a_link_must_be_in_the_file() {
        assert!(lines(&[("docs/x.md", "[`helper`](../wal/src/lib.rs)\n"), LIB]).is_empty());
        assert_eq!(lines(&[("docs/x.md", "[`helped`](../wal/src/lib.rs)\n"), LIB]), [1]);
    }

    fn guarantees(row: &str) -> Vec<usize> {
        let text =
            format!("## Guarantees\n\n| what | held by |\n|---|---|\n{row}\n\n## Next\n| a |\n");
        lines(&[("README.md", &text), LIB])
    }

    #[test]
    fn a_guarantee_must_link_to_a_test() {
        assert!(guarantees("| durable | [`a_claim`](wal/src/lib.rs) |").is_empty());
        assert!(guarantees("| durable | [`listed`](wal/src/lib.rs) |").is_empty());
        assert_eq!(guarantees("| durable | [`helper`](wal/src/lib.rs) |"), [5]);
        assert_eq!(guarantees("| durable | trust us |"), [5]);
        assert_eq!(guarantees("| durable | [the log](wal/src/lib.rs) |"), [5]);
    }
}
