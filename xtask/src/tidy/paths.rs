//! The paths that code names: `std::fs::read(..)`, `use std::{fs, io::Read};`.

use super::mask::is_name;
use super::rust::line_of;

/// A path as code names it, with its `use` tree unfolded.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Named {
    /// `std::fs::File`; a glob ends in `::*`.
    pub(super) path: String,
    /// Line of its last part, from 1.
    pub(super) line: usize,
}

impl Named {
    /// True where this names `module` or something in it.
    pub(super) fn is_within(&self, module: &str) -> bool {
        // `use std::*` brings `fs` in without naming it.
        if let Some(prefix) = self.path.strip_suffix("::*")
            && module.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("::"))
        {
            return true;
        }
        self.path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }
}

/// Every path of two parts or more, and every `use`, in masked code.
pub(super) fn named(code: &str) -> Vec<Named> {
    let mut tokens = Tokens { code, at: 0 };
    let mut all = Vec::new();
    while let Some((token, at)) = tokens.next() {
        if token == "use" {
            use_tree(&mut tokens, "", &mut all);
        } else if token.bytes().all(is_name) {
            let (path, at) = tokens.rest_of_path(token, at);
            if path.contains("::") {
                all.push(Named { path, line: line_of(code.as_bytes(), at) });
            }
        }
    }
    all
}

/// Reads one branch of a `use`, up to and with the token that ends it, which is returned.
fn use_tree<'a>(tokens: &mut Tokens<'a>, prefix: &str, all: &mut Vec<Named>) -> Option<&'a str> {
    let mut path = prefix.to_owned();
    let mut place = tokens.at;
    while let Some((token, at)) = tokens.next() {
        match token {
            "::" if path.is_empty() => {}
            "::" => path.push_str("::"),
            "{" => {
                while use_tree(tokens, &path, all)? == "," {}
                path.clear();
            }
            "as" => drop(tokens.next()),
            "," | ";" | "}" => {
                let path = path.trim_end_matches("::self").to_owned();
                if !path.is_empty() && path != prefix {
                    all.push(Named { path, line: line_of(tokens.code.as_bytes(), place) });
                }
                return Some(token);
            }
            _ => {
                path.push_str(token);
                place = at;
            }
        }
    }
    None
}

struct Tokens<'a> {
    code: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn rest_of_path(&mut self, first: &str, mut place: usize) -> (String, usize) {
        let mut path = first.to_owned();
        loop {
            let before = self.at;
            match (self.next(), self.next()) {
                (Some(("::", _)), Some((name, at))) if name.bytes().all(is_name) => {
                    path = format!("{path}::{name}");
                    place = at;
                }
                _ => {
                    self.at = before;
                    return (path, place);
                }
            }
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (&'a str, usize);

    /// The next name, `::`, or other single character, and its place.
    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.code[self.at..];
        let start = self.at + rest.find(|c: char| !c.is_whitespace())?;
        let rest = &self.code[start..];
        let name = rest.bytes().take_while(|&byte| is_name(byte)).count();
        let length = match name {
            0 if rest.starts_with("::") => 2,
            0 => rest.chars().next().map_or(1, char::len_utf8),
            length => length,
        };
        self.at = start + length;
        Some((&self.code[start..self.at], start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(code: &str) -> Vec<String> {
        named(code).into_iter().map(|named| named.path).collect()
    }

    #[test]
    fn a_path_in_code_is_named() {
        assert_eq!(paths("let x = std::fs::read(path);"), ["std::fs::read"]);
        assert_eq!(paths("fn f(x: std::io::Result<()>) {}"), ["std::io::Result"]);
        assert!(paths("let rand = tokio;").is_empty());
    }

    #[test]
    fn a_use_tree_is_unfolded() {
        let code = "use std::{fs::{self, File as F}, io, net::*};\nuse ::tokio;";
        assert_eq!(paths(code), ["std::fs", "std::fs::File", "std::io", "std::net::*", "tokio"]);
    }

    #[test]
    fn each_name_has_its_own_line() {
        let found = named("use std::{\n    io,\n    fs,\n};\nlet a = b::c;");
        let lines: Vec<usize> = found.iter().map(|named| named.line).collect();
        assert_eq!(lines, [2, 3, 5]);
    }

    #[test]
    fn a_path_is_within_its_module_and_under_a_glob() {
        let within =
            |path: &str, module| Named { path: path.to_owned(), line: 1 }.is_within(module);
        assert!(within("std::fs", "std::fs") && within("std::fs::File", "std::fs"));
        assert!(within("std::*", "std::fs") && within("tokio::time::Instant", "tokio"));
        assert!(!within("std::fsx", "std::fs") && !within("st::*", "std::fs"));
        assert!(!within("crate::std::fs", "std::fs"));
    }
}
