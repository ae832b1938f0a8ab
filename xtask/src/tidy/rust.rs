//! What the checks need to know of a Rust file: its masks, and which of its lines are tests.

use super::mask::{Masks, is_name};

/// A Rust file, seen by the checks.
pub(super) struct Rust {
    /// See [`Masks`].
    pub(super) masks: Masks,
    /// For each line, whether it belongs to a test.
    pub(super) is_test: Vec<bool>,
    /// Paths where a module that is declared for tests alone may lie.
    pub(super) test_files: Vec<String>,
}

impl Rust {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let masks = Masks::of(text);
        let mut rust = Self {
            is_test: vec![is_test_path(path); text.lines().count()],
            masks,
            test_files: Vec::new(),
        };
        rust.mark_tests(path);
        rust
    }

    /// The lines of production code under `mask`, numbered from 1.
    pub(super) fn production<'a>(
        &'a self,
        mask: &'a str,
    ) -> impl Iterator<Item = (usize, &'a str)> {
        let numbered = mask.lines().enumerate();
        numbered.filter(|(index, _)| !self.is_test[*index]).map(|(index, line)| (index + 1, line))
    }

    /// True where the line, from 1, belongs to a test.
    pub(super) fn is_test_line(&self, line: usize) -> bool {
        line.checked_sub(1).and_then(|index| self.is_test.get(index)).copied().unwrap_or(false)
    }

    fn mark_tests(&mut self, path: &str) {
        let code = self.masks.code.as_bytes();
        let mut at = 0;
        while let Some(found) = find(code, b"#[cfg(", at) {
            let attribute_end = closing(code, found + 1);
            at = attribute_end;
            if !is_test_condition(&self.masks.code[found..attribute_end]) {
                continue;
            }
            let item = skip_attributes(code, attribute_end);
            let end = item_end(code, item);
            let (first, last) = (line_of(code, found), line_of(code, end));
            for is_test in self.is_test.iter_mut().take(last).skip(first - 1) {
                *is_test = true;
            }
            if let Some(module) = declared_module(&self.masks.code[item..end]) {
                self.test_files.extend(module_paths(path, module));
            }
            at = end;
        }
    }
}

/// Test code by its place: integration tests, and files named for it.
fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// `cfg(test)`, alone or as one of several that must all hold.
fn is_test_condition(attribute: &str) -> bool {
    let plain: String = attribute.chars().filter(|c| !c.is_whitespace()).collect();
    let words = |text: &str| text.split([',', '(', ')', ']']).any(|word| word == "test");
    plain == "#[cfg(test)]"
        || plain
            .strip_prefix("#[cfg(all(")
            .is_some_and(|rest| words(rest) && !rest.contains("not(test") && !rest.contains("any("))
}

/// The name in `mod name;`, where the item is that.
fn declared_module(item: &str) -> Option<&str> {
    let name = item.trim().strip_suffix(';')?.trim_end();
    let (before, name) = name.rsplit_once(char::is_whitespace)?;
    (before.split_whitespace().last() == Some("mod")).then_some(name)
}

/// Where rustc would look for `module`, declared in the file at `path`.
fn module_paths(path: &str, module: &str) -> [String; 2] {
    let (folder, file) = path.rsplit_once('/').unwrap_or((".", path));
    let stem = file.trim_end_matches(".rs");
    let folder = match stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        _ => format!("{folder}/{stem}"),
    };
    [format!("{folder}/{module}.rs"), format!("{folder}/{module}/mod.rs")]
}

fn find(code: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let windows = code.get(from..)?.windows(needle.len());
    windows.into_iter().position(|window| window == needle).map(|at| from + at)
}

fn skip_attributes(code: &[u8], mut at: usize) -> usize {
    loop {
        while code.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if !code[at..].starts_with(b"#[") {
            return at;
        }
        at = closing(code, at + 1);
    }
}

/// Where the item that starts at `at` ends: after its `;`, or after its block.
fn item_end(code: &[u8], at: usize) -> usize {
    match body(code, at) {
        Some(open) => closing(code, open),
        None => find(code, b";", at).map_or(code.len(), |semicolon| semicolon + 1),
    }
}

/// Where the block of the item that starts at `at` opens; `None` where a `;` comes first.
pub(super) fn body(code: &[u8], mut at: usize) -> Option<usize> {
    while at < code.len() {
        match code[at] {
            b'(' | b'[' => at = closing(code, at),
            b'{' => return Some(at),
            b';' => return None,
            _ => at += 1,
        }
    }
    None
}

/// The place after the bracket that closes the one at `open`.
pub(super) fn closing(code: &[u8], open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code[open..].iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return open + offset + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The line, from 1, of a place. A place after the last byte of a line belongs to that line.
pub(super) fn line_of(code: &[u8], at: usize) -> usize {
    1 + code[..at.min(code.len())].iter().filter(|&&byte| byte == b'\n').count()
}

/// Every place where `word` stands in `code` as a word of its own.
pub(super) fn word_places(code: &str, word: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    let is_edge =
        |at: Option<usize>| !at.and_then(|at| bytes.get(at)).copied().is_some_and(is_name);
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(|&at| is_edge(at.checked_sub(1)) && is_edge(Some(at + word.len())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_lines(text: &str) -> Vec<usize> {
        let rust = Rust::new("wal/src/lib.rs", text);
        (1..=text.lines().count()).filter(|line| rust.is_test_line(*line)).collect()
    }

    #[test]
    fn a_test_module_is_found_to_its_last_brace() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { '}'; \"}\"; }\n}\nfn c() {}\n";
        assert_eq!(test_lines(text), [2, 3, 4, 5]);
    }

    #[test]
    fn other_items_for_tests_are_found_too() {
        let text = "#[cfg(test)]\n#[allow(dead_code)]\nuse a::{b, c};\nfn a() {}\n";
        assert_eq!(test_lines(text), [1, 2, 3]);
        let text = "#[cfg(all(test, unix))]\nfn f(x: [u8; 4]) {\n}\nfn a() {}\n";
        assert_eq!(test_lines(text), [1, 2, 3]);
    }

    #[test]
    fn code_that_only_mentions_tests_is_production() {
        assert!(test_lines("#[cfg(not(test))]\nfn a() {}\n").is_empty());
        assert!(test_lines("#[cfg(any(test, feature = \"sim\"))]\nfn a() {}\n").is_empty());
        assert!(test_lines("// #[cfg(test)]\nfn a() {}\n").is_empty());
    }

    #[test]
    fn integration_tests_are_tests() {
        assert!(Rust::new("engine/tests/model_based.rs", "fn a() {}\n").is_test_line(1));
        assert!(Rust::new("engine/src/decide/tests.rs", "fn a() {}\n").is_test_line(1));
        assert!(!Rust::new("loom-tests/src/lib.rs", "fn a() {}\n").is_test_line(1));
    }

    #[test]
    fn words_are_found_whole() {
        assert_eq!(word_places("fs fsync a_fs std::fs", "fs"), [0, 19]);
    }
}
