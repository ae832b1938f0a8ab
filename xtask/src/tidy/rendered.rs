//! Pages that repeat what opens a source file, so that there is one copy to keep true.
//!
//! In a page, `<!-- rendered from wal/src/frame.rs -->` and the `<!-- end -->` after it hold the
//! comment that opens that file. `cargo xtask docs` fills them in, and tidy finds them stale.

use super::Problem;
use super::tree::{File, Tree};

const BEGIN: &str = "<!-- rendered from ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for page in pages(tree) {
        for (index, line) in page.text.lines().enumerate() {
            if let Some(path) = source(line).filter(|path| tree.file(path).is_none()) {
                let message = format!("there is no {path} to render");
                problems.push(Problem::at(&page.path, index + 1, message));
            }
        }
        if render(page, tree) != page.text {
            problems.push(Problem::at(&page.path, 0, "stale: run `cargo xtask docs`"));
        }
    }
    problems
}

/// The Markdown files that hold something rendered.
pub(super) fn pages(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| {
        file.path.ends_with(".md") && file.text.lines().any(|line| source(line).is_some())
    })
}

/// The page with every rendered part as its source has it now.
pub(super) fn render(page: &File, tree: &Tree) -> String {
    let mut text = String::new();
    let mut lines = page.text.lines();
    while let Some(line) = lines.next() {
        text += &format!("{line}\n");
        if let Some(opening) = source(line).and_then(|path| tree.file(path)).map(opening) {
            text += &format!("\n{opening}\n{END}\n");
            // What stood here before; to the end of the page where nobody closed it.
            lines.by_ref().find(|line| *line == END);
        }
    }
    text
}

fn source(line: &str) -> Option<&str> {
    line.strip_prefix(BEGIN)?.strip_suffix(CLOSE)
}

/// The comment that opens a source file.
fn opening(file: &File) -> String {
    let lines = file.text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: (&str, &str) =
        ("wal/src/frame.rs", "//! The frame.\n//!\n//! | off |\nfn f() {}\n");

    fn rendered(page: &str) -> String {
        let tree = Tree::of(&[("docs/format.md", page), SOURCE]);
        render(tree.file("docs/format.md").unwrap(), &tree)
    }

    const FRESH: &str = "# Format\n<!-- rendered from wal/src/frame.rs -->\n\nThe frame.\n\n\
                         | off |\n\n<!-- end -->\nafter\n";

    #[test]
    fn a_part_is_filled_with_what_opens_its_source() {
        let empty = "# Format\n<!-- rendered from wal/src/frame.rs -->\n<!-- end -->\nafter\n";
        assert_eq!(rendered(empty), FRESH);
        assert_eq!(rendered(FRESH), FRESH);
    }

    #[test]
    fn a_stale_part_and_a_lost_source_are_found() {
        let problems = |page: &str| check(&Tree::of(&[("docs/format.md", page), SOURCE]));
        assert!(problems(FRESH).is_empty());
        assert_eq!(problems(&FRESH.replace("The frame", "A frame")).len(), 1);
        assert_eq!(problems(&FRESH.replace("frame.rs", "gone.rs"))[0].line, 2);
    }
}
