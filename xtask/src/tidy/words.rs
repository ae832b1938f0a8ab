//! What no file may say: leftovers of work, the paths of someone's machine, a registry's host.
//! And code is ASCII, so that what a reviewer sees is what the compiler reads.

use super::Problem;
use super::rust::{Rust, word_places};
use super::tree::{File, Tree};

/// Marks of unfinished work, in code or in comments. Cut in two, or this list would find itself.
const LEFTOVERS: &[&str] = &[concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];

/// Macros that stand for unfinished work.
const LEFTOVER_MACROS: &[&str] = &["dbg", "todo", "unimplemented"];

/// Folders that exist on someone's machine only.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];

/// Hosts of registries: where packages come from is the concern of whoever builds.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("static.rust", "-lang.org"),
    concat!("registry.npm", "js.org"),
    concat!("py", "pi.org"),
    concat!("deb.deb", "ian.org"),
];

/// The one source that a locked package may have: the name cargo gives its default registry.
const LOCKED_SOURCE: &str =
    concat!("source = \"registry+https://github.com/rust-lang/crates", ".io-index\"");

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        if file.path == "Cargo.lock" {
            problems.extend(check_lock(file));
        } else {
            problems.extend(check_text(file));
        }
        if let Some(rust) = &file.rust {
            problems.extend(check_code(file, rust));
        }
    }
    problems
}

fn check_lock(file: &File) -> Vec<Problem> {
    let sources = file.text.lines().enumerate().filter(|(_, line)| line.starts_with("source"));
    sources
        .filter(|(_, line)| *line != LOCKED_SOURCE)
        .map(|(index, _)| {
            Problem::at(&file.path, index + 1, "a package from elsewhere than cargo's registry")
        })
        .collect()
}

fn check_text(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let mut say = |message: String| {
            problems.push(Problem::at(&file.path, index + 1, message));
        };
        for word in LEFTOVERS.iter().filter(|word| !word_places(line, word).is_empty()) {
            say(format!("{word}: finish it, or say under \"Not in this version\" that it waits"));
        }
        for path in MACHINE_PATHS.iter().filter(|path| names_folder(line, path)) {
            say(format!("{path} is a folder of someone's machine"));
        }
        for host in REGISTRY_HOSTS.iter().filter(|host| line.contains(**host)) {
            say(format!("{host} is a registry's host: name the package alone"));
        }
    }
    problems
}

/// True where `line` names `folder` as an absolute path: `target/home/x` is none.
fn names_folder(line: &str, folder: &str) -> bool {
    let follows_name = |at: usize| {
        line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '}'))
    };
    line.match_indices(folder).any(|(at, _)| !follows_name(at))
}

fn check_code(file: &File, rust: &Rust) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in rust.masks.code.lines().enumerate() {
        for name in LEFTOVER_MACROS {
            let is_call = |at: &usize| line[at + name.len()..].starts_with('!');
            if word_places(line, name).iter().any(is_call) {
                problems.push(Problem::at(&file.path, index + 1, format!("{name}! is a leftover")));
            }
        }
    }
    for (line, text) in rust.production(&file.text).filter(|(_, text)| !text.is_ascii()) {
        let stranger: String = text.chars().filter(|c| !c.is_ascii()).take(1).collect();
        let message = format!("{stranger:?} is not ASCII: write \\u{{..}}, or other words");
        problems.push(Problem::at(&file.path, line, message));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn every_leftover_is_found_in_any_file() {
        for word in LEFTOVERS {
            assert_eq!(lines("docs/format.md", &format!("a\n{word}: later\n")), [2], "{word}");
            assert_eq!(lines("wal/src/lib.rs", &format!("fn f() {{}} // {word}\n")), [1], "{word}");
            assert!(lines("docs/format.md", &format!("{word}S\n")).is_empty(), "{word}");
        }
    }

    #[test]
    fn leftover_macros_are_found_in_code_alone() {
        for name in LEFTOVER_MACROS {
            assert_eq!(
                lines("wal/src/lib.rs", &format!("fn f() {{ {name}!() }}\n")),
                [1],
                "{name}"
            );
            assert!(lines("wal/src/lib.rs", &format!("// {name}!()\n")).is_empty(), "{name}");
        }
        assert!(lines("wal/src/lib.rs", "if !todo != x {}\n").is_empty());
    }

    #[test]
    fn a_machines_path_is_found() {
        for path in MACHINE_PATHS {
            assert_eq!(lines("README.md", &format!("see `{path}x`\n")), [1], "{path}");
            assert!(lines("README.md", &format!("see target{path}x\n")).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_registrys_host_is_found() {
        for host in REGISTRY_HOSTS {
            assert_eq!(lines("CONTRIBUTING.md", &format!("from {host}\n")), [1], "{host}");
        }
    }

    #[test]
    fn a_package_locked_from_elsewhere_is_found() {
        let text = format!("[[package]]\n{LOCKED_SOURCE}\n");
        assert!(lines("Cargo.lock", &text).is_empty());
        assert_eq!(
            lines("Cargo.lock", "[[package]]\nsource = \"git+https://example.com/x\"\n"),
            [2]
        );
    }

    #[test]
    fn code_is_ascii_and_tests_need_not_be() {
        assert_eq!(lines("wal/src/lib.rs", "// a \u{2192} b\n"), [1]);
        let test = "#[cfg(test)]\nmod tests {\n    // \u{5bf9}\n}\n";
        assert!(lines("wal/src/lib.rs", test).is_empty());
        assert!(lines("README.md", "\u{2192}\n").is_empty());
    }
}
