//! The files under check, in memory.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::rust::Rust;
use crate::failure::Failure;

/// Every file that git tracks or would track.
pub(super) struct Tree {
    pub(super) files: Vec<File>,
}

/// One file.
pub(super) struct File {
    /// Its path from the repository's root, with slashes.
    pub(super) path: String,
    /// Its text; empty where it is no UTF-8.
    pub(super) text: String,
    /// What is known of it where it is Rust.
    pub(super) rust: Option<Rust>,
}

impl Tree {
    /// Reads the working tree.
    ///
    /// # Errors
    /// [`Failure::Io`] where git or a file cannot be read.
    pub(super) fn read() -> Result<Self, Failure> {
        let failed = |what| move |source| Failure::Io { what, source };
        // Files not yet added are checked too: they are what the next commit adds.
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .map_err(failed("list the tree with git"))?;
        if !output.status.success() {
            return Err(Failure::Exit { command: "git ls-files (tidy needs a clone)".to_owned() });
        }
        let listing = String::from_utf8_lossy(&output.stdout);
        let mut files = Vec::new();
        for path in listing.split('\0').collect::<BTreeSet<_>>() {
            // A file deleted but not yet committed is listed and is not there.
            if path.is_empty() || !Path::new(path).is_file() {
                continue;
            }
            let bytes = std::fs::read(path).map_err(failed("read a tracked file"))?;
            files.push((path.to_owned(), String::from_utf8(bytes).unwrap_or_default()));
        }
        Ok(Self::new(files))
    }

    fn new(files: Vec<(String, String)>) -> Self {
        let mut files: Vec<File> = files
            .into_iter()
            .map(|(path, text)| {
                let rust = path.ends_with(".rs").then(|| Rust::new(&path, &text));
                File { path, text, rust }
            })
            .collect();
        // `#[cfg(test)] mod tests;` makes tests.rs a test from its first line.
        let tests: BTreeSet<String> = files
            .iter()
            .filter_map(|file| file.rust.as_ref())
            .flat_map(|rust| rust.test_files.iter().cloned())
            .collect();
        for file in &mut files {
            if let Some(rust) = file.rust.as_mut().filter(|_| tests.contains(&file.path)) {
                rust.is_test.fill(true);
            }
        }
        Self { files }
    }

    /// The file at `path`.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// True where `path` is a file or a folder with files.
    pub(super) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }

    /// The Rust files, with what is known of them.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&File, &Rust)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }

    /// A tree for the checks' own tests.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_declared_for_tests_is_a_test_from_its_first_line() {
        let tree = Tree::of(&[
            ("wal/src/lib.rs", "mod recover;\n"),
            ("wal/src/recover.rs", "fn f() {}\n#[cfg(test)]\nmod torn;\n"),
            ("wal/src/recover/torn.rs", "fn f() {}\n"),
        ]);
        let is_test = |path: &str| tree.file(path).unwrap().rust.as_ref().unwrap().is_test[0];
        assert!(is_test("wal/src/recover/torn.rs"));
        assert!(!is_test("wal/src/recover.rs"));
    }

    #[test]
    fn a_folder_is_there_where_it_has_files() {
        let tree = Tree::of(&[("docs/format.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/") && tree.has("docs/format.md"));
        assert!(!tree.has("doc") && !tree.has("docs/format"));
    }
}
