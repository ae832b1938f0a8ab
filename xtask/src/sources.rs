//! Suites of Debian that this machine has no source of: its backports, and later releases.
//!
//! They lie beside the release that the machine has: so their source is the machine's own source of
//! that release, with the suite's name changed. The derived file is handed to apt-get for one run,
//! from a folder of ours; the machine's own sources stay as they are.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

const SOURCES: &str = "/etc/apt/sources.list";
const SOURCE_PARTS: &str = "/etc/apt/sources.list.d";

/// Where the sources for one run lie, from the repository's root.
const FOLDER: &str = "target/apt-sources";

/// Makes a folder that holds the machine's source parts and, derived from them, the backports
/// suite. apt-get takes it with the option that is returned.
///
/// # Errors
/// [`Failure::Io`] where a file cannot be read or written, [`Failure::Backports`] where the
/// machine has no source to derive the suite from.
pub(crate) fn with_backports() -> Result<String, Failure> {
    let sources = sources()?;
    let (name, derived) =
        derived(&sources, |codename| format!("{codename}-backports"))?.ok_or(Failure::Backports)?;
    let folder = emptied(Path::new(FOLDER))?;
    for (path, _) in sources.iter().filter(|(path, _)| path.starts_with(SOURCE_PARTS)) {
        if let Some(name) = path.file_name() {
            fs::copy(path, folder.join(name)).map_err(failed("copy a source list of apt"))?;
        }
    }
    fs::write(folder.join(name), derived).map_err(failed("write a source list for apt"))?;
    Ok(parts_option(&folder))
}

/// Makes `folder`, empty before, hold the source of `suite` alone. apt-get takes it with the option
/// that is returned.
///
/// # Errors
/// [`Failure::Io`] where a file cannot be read or written, [`Failure::NoSuite`] where the machine
/// has no source to derive the suite from.
pub(crate) fn of(suite: &'static str, folder: &Path) -> Result<String, Failure> {
    let (name, derived) =
        derived(&sources()?, |_| suite.to_owned())?.ok_or(Failure::NoSuite { suite })?;
    let folder = emptied(folder)?;
    fs::write(folder.join(name), derived).map_err(failed("write a source list for apt"))?;
    Ok(parts_option(&folder))
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |source| Failure::Io { what, source }
}

fn parts_option(folder: &Path) -> String {
    format!("Dir::Etc::SourceParts={}", folder.display())
}

/// The folder, made anew.
fn emptied(folder: &Path) -> Result<PathBuf, Failure> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed("empty the folder for apt's sources"))?;
    }
    fs::create_dir_all(folder).map_err(failed("make a folder for apt's sources"))?;
    fs::canonicalize(folder).map_err(failed("find the folder for apt's sources"))
}

/// The machine's own sources, each with its path.
fn sources() -> Result<Vec<(PathBuf, String)>, Failure> {
    let read = |path: PathBuf| match fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(source) => Err(Failure::Io { what: "read a source list of apt", source }),
    };
    source_files().into_iter().map(read).collect()
}

/// The source of the suite that `suite` names beside this release, as a file's name and its text;
/// `None` where no source is of this release.
fn derived(
    sources: &[(PathBuf, String)],
    suite: impl Fn(&str) -> String,
) -> Result<Option<(&'static str, String)>, Failure> {
    let release = fs::read_to_string("/etc/os-release").map_err(failed("read /etc/os-release"))?;
    let Some(codename) = codename(&release) else { return Ok(None) };
    let suite = suite(codename);
    Ok(sources.iter().find_map(|(path, text)| match is_deb822(path) {
        true => Some(("sluice-suite.sources", from_deb822(text, codename, &suite)?)),
        false => Some(("sluice-suite.list", from_list(text, codename, &suite)?)),
    }))
}

/// The files that apt reads.
fn source_files() -> Vec<PathBuf> {
    let parts = fs::read_dir(SOURCE_PARTS).into_iter().flatten().flatten();
    let mut files: Vec<_> = parts.map(|entry| entry.path()).collect();
    files.sort();
    files.insert(0, PathBuf::from(SOURCES));
    let is_source =
        |path: &PathBuf| is_deb822(path) || path.extension().is_some_and(|it| it == "list");
    files.retain(|path| is_source(path) && path.is_file());
    files
}

fn is_deb822(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sources")
}

/// `VERSION_CODENAME` of /etc/os-release.
fn codename(release: &str) -> Option<&str> {
    let line = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(line.trim().trim_matches('"')).filter(|name| !name.is_empty())
}

/// The first stanza of packages for `codename` itself, for `wanted` instead.
fn from_deb822(text: &str, codename: &str, wanted: &str) -> Option<String> {
    let value = |line: &str, field: &str| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case(field).then(|| value.trim().to_owned())
    };
    let holds = |stanza: &[&str], field: &str, word: &str| {
        let mut values = stanza.iter().filter_map(|line| value(line, field));
        values.any(|value| value.split_whitespace().any(|it| it == word))
    };
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut stanzas = lines.split(|line| line.trim().is_empty());
    let stanza = stanzas.find(|stanza| {
        let disabled = ["no", "false"].iter().any(|no| holds(stanza, "Enabled", no));
        holds(stanza, "Types", "deb") && holds(stanza, "Suites", codename) && !disabled
    })?;
    let mut derived = String::new();
    for line in stanza {
        match value(line, "Suites") {
            Some(_) => derived += &format!("Suites: {wanted}\n"),
            None => derived += &format!("{line}\n"),
        }
    }
    Some(derived)
}

/// The first line of packages for `codename` itself, for `wanted` instead.
fn from_list(text: &str, codename: &str, wanted: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        // Options in brackets may hold spaces; no name of a suite follows them directly.
        let options_end = line.find(']').map_or(0, |at| at + 1);
        let (options, rest) = line.split_at(options_end);
        let mut words: Vec<_> = rest.split_whitespace().collect();
        let is_packages = match options_end {
            0 => words.first() == Some(&"deb"),
            _ => options.split_whitespace().next() == Some("deb"),
        };
        let suite = words.iter().position(|word| *word == codename)?;
        words[suite] = wanted;
        let line = format!("{options} {}\n", words.join(" "));
        is_packages.then(|| line.trim_start().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: stable12\n\n\
                          # the main one\nTypes: deb\nURIs: http://mirror.example/debian\n\
                          Suites: stable12 stable12-updates\nComponents: main\n\
                          Signed-By: /keyring.gpg\n\n\
                          Types: deb\nURIs: http://mirror.example/security\n\
                          Suites: stable12-security\nComponents: main\n";

    #[test]
    fn the_backports_lie_beside_the_release_in_a_deb822_source() {
        assert_eq!(
            from_deb822(DEB822, "stable12", "stable12-backports").as_deref(),
            Some(
                "Types: deb\nURIs: http://mirror.example/debian\nSuites: stable12-backports\n\
                 Components: main\nSigned-By: /keyring.gpg\n"
            )
        );
    }

    #[test]
    fn a_source_of_another_release_or_a_disabled_one_is_none_to_derive_from() {
        assert_eq!(from_deb822(DEB822, "stable11", "later"), None);
        let disabled = DEB822.replace("Components: main", "Components: main\nEnabled: no");
        assert_eq!(from_deb822(&disabled, "stable12", "later"), None);
    }

    #[test]
    fn a_suite_lies_beside_the_release_in_a_source_of_one_line() {
        let list = "# deb http://old.example/debian stable12 main\n\
                    deb-src http://mirror.example/debian stable12 main\n\
                    deb http://mirror.example/security stable12-security main\n\
                    deb http://mirror.example/debian stable12 main contrib # ours\n";
        let derived = "deb http://mirror.example/debian later main contrib\n";
        assert_eq!(from_list(list, "stable12", "later").as_deref(), Some(derived));
        let options = "deb [ arch=amd64 signed-by=/k.gpg ] http://m.example/debian stable12 main\n";
        let derived = "deb [ arch=amd64 signed-by=/k.gpg ] http://m.example/debian later main\n";
        assert_eq!(from_list(options, "stable12", "later").as_deref(), Some(derived));
        assert_eq!(from_list(list, "stable11", "later"), None);
    }

    #[test]
    fn the_codename_is_read_with_and_without_quotes() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=stable12\n"), Some("stable12"));
        assert_eq!(codename("VERSION_CODENAME=\"stable12\"\n"), Some("stable12"));
        assert_eq!(codename("ID=rolling\n"), None);
    }
}
