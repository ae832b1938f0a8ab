//! Servers that the machine's release of Debian does not have: a real MySQL, a Redis 8.
//!
//! Another suite of the same archive has them, built for a newer C library. So an apt with lists
//! and state of its own fetches the packages with all that they depend on, they are unpacked into a
//! folder under `target/`, and the loader that was unpacked with them starts the server. The
//! machine's packages and apt's own settings stay as they are, and nobody need be root.
//!
//! What was fetched once is used again. The suites move: to follow them, delete `target/foreign`.
//! A server of one's own, of whatever version, is taken where the variable names it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::{sources, steps};

/// Where they lie, from the repository's root.
const FOLDER: &str = "target/foreign";

/// A server of another suite.
pub(crate) struct Foreign {
    /// The variable that tests read: the path of a program to start in place of the machine's.
    pub(crate) variable: &'static str,
    suite: &'static str,
    package: &'static str,
    /// The server in the package.
    program: &'static str,
    /// Arguments behind those of whoever starts it: where the package has what the server would
    /// look for in the machine's own folders.
    homes: &'static [(&'static str, &'static str)],
}

/// A real MySQL: no release of Debian has one, so it is of the suite that becomes the next.
pub(crate) const MYSQL: Foreign = Foreign {
    variable: "SLUICE_MYSQLD",
    suite: "sid",
    package: "mysql-server-core",
    program: "usr/sbin/mysqld",
    homes: &[
        ("--basedir=", "usr"),
        ("--lc-messages-dir=", "usr/share/mysql"),
        ("--character-sets-dir=", "usr/share/mysql/charsets"),
        ("--plugin-dir=", "usr/lib/mysql/plugin"),
    ],
};

/// A Redis 8.
pub(crate) const REDIS: Foreign = Foreign {
    variable: "SLUICE_REDIS_SERVER",
    suite: "trixie",
    package: "redis-server",
    program: "usr/bin/redis-server",
    homes: &[],
};

impl Foreign {
    /// The program that starts it, once it was [provided](Self::provide): the one that the variable
    /// names, or a script in our folder.
    pub(crate) fn starter(&self) -> PathBuf {
        let named = std::env::var_os(self.variable).map(PathBuf::from);
        named.unwrap_or_else(|| self.folder().join("start"))
    }

    fn folder(&self) -> PathBuf {
        Path::new(FOLDER).join(format!("{}-{}", self.suite, self.package))
    }

    /// The program that starts it, by its full path; fetched where it is not there.
    ///
    /// # Errors
    /// [`Failure::NoSuite`] where the machine has no source to derive the suite from,
    /// [`Failure::Exit`] where apt-get or dpkg-deb failed, [`Failure::NotInPackage`] where the
    /// package is another than it was.
    pub(crate) fn provide(&self) -> Result<PathBuf, Failure> {
        let starter = self.starter();
        if !starter.is_file() && std::env::var_os(self.variable).is_none() {
            println!("fetching {} of Debian's suite {}", self.package, self.suite);
            self.fetch(&self.folder())?;
        }
        fs::canonicalize(starter).map_err(failed("find the server that tests are to start"))
    }

    /// Makes `folder` hold it. A run that was cut short leaves nothing that looks whole.
    fn fetch(&self, folder: &Path) -> Result<(), Failure> {
        let mut begun = folder.as_os_str().to_owned();
        begun.push(".new");
        let begun = PathBuf::from(begun);
        for old in [folder, &begun].into_iter().filter(|old| old.exists()) {
            fs::remove_dir_all(old).map_err(failed("remove what an earlier run fetched"))?;
        }
        let (apt, root) = (Apt::new(self.suite, &begun)?, begun.join("root"));
        fs::create_dir(&root).map_err(failed("make a folder for packages"))?;
        for package in apt.download(self.package)? {
            steps::succeed(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&root))?;
        }
        apt.forget()?;
        if !root.join(self.program).exists() {
            let (package, file) = (self.package, self.program);
            return Err(Failure::NotInPackage { package, file });
        }
        let loader = loader(&root.join("usr/lib")).ok_or(Failure::NotInPackage {
            package: self.package,
            file: "usr/lib/*/ld-linux*.so.*",
        })?;
        // Paths as they will be: the folder gets its name when all is there.
        let home = std::env::current_dir().map_err(failed("find the present folder"))?.join(folder);
        let loader = home.join(loader.strip_prefix(&begun).unwrap_or(&loader));
        let start = begun.join("start");
        let text = script(&loader, &home.join("root"), self.program, self.homes);
        fs::write(&start, text).map_err(failed("write a server's starter"))?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&start, executable).map_err(failed("make a starter executable"))?;
        fs::rename(&begun, folder).map_err(failed("name a server's folder"))
    }
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |source| Failure::Io { what, source }
}

/// An apt of our own: one suite, nothing installed.
struct Apt {
    home: PathBuf,
    options: Vec<String>,
}

impl Apt {
    fn new(suite: &'static str, folder: &Path) -> Result<Self, Failure> {
        let home = folder.join("apt");
        for part in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(home.join(part)).map_err(failed("make a folder for apt"))?;
        }
        let home = fs::canonicalize(home).map_err(failed("find apt's folder"))?;
        // Nothing is installed: so all that a package needs is fetched, the C library too.
        let status = home.join("status");
        fs::write(&status, "").map_err(failed("write a list of no packages"))?;
        let sources = sources::of(suite, &home.join("sources"))?;
        let at = |key: &str, path: &str| format!("{key}={}", home.join(path).display());
        let options = vec![
            sources,
            "Dir::Etc::SourceList=/dev/null".to_owned(),
            "Dir::Etc::Preferences=/dev/null".to_owned(),
            "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
            at("Dir::State", "state"),
            at("Dir::State::status", "status"),
            at("Dir::Cache", "cache"),
            // Root's apt fetches as a user who may not enter this folder.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
            // Whatever the machine's own settings allow: what is not signed does not run here.
            "APT::Get::AllowUnauthenticated=false".to_owned(),
            "Acquire::AllowInsecureRepositories=false".to_owned(),
            // A list that was not fetched is told as that, not as a package that is missing.
            "APT::Update::Error-Mode=any".to_owned(),
        ];
        Ok(Self { home, options })
    }

    fn run(&self, arguments: &[&str]) -> Result<(), Failure> {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-y"]);
        for option in &self.options {
            command.arg("-o").arg(option);
        }
        steps::succeed(command.args(arguments))
    }

    /// The files of `package` and of all that it needs.
    fn download(&self, package: &str) -> Result<Vec<PathBuf>, Failure> {
        self.run(&["update"])?;
        self.run(&["install", "--download-only", "--no-install-recommends", package])?;
        let archives = self.home.join("cache/archives");
        let entries = fs::read_dir(archives).map_err(failed("list the packages fetched"))?;
        let files = entries.flatten().map(|entry| entry.path());
        Ok(files.filter(|path| path.extension().is_some_and(|it| it == "deb")).collect())
    }

    /// Removes what is of no use once all is unpacked.
    fn forget(self) -> Result<(), Failure> {
        fs::remove_dir_all(self.home).map_err(failed("remove what apt fetched"))
    }
}

/// The dynamic loader below `libraries`, beside the C library that it belongs to.
fn loader(libraries: &Path) -> Option<PathBuf> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let is_loader = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("ld-linux") && name.contains(".so.")
    };
    let folders = entries(libraries).map(|entry| entry.path()).filter(|path| path.is_dir());
    folders.flat_map(|folder| entries(&folder).map(|it| it.path()).find(is_loader)).next()
}

/// What starts `program` of `root` by its own loader and libraries. It becomes the server, so that
/// whoever kills it kills that.
fn script(loader: &Path, root: &Path, program: &str, homes: &[(&str, &str)]) -> String {
    let libraries = loader.parent().unwrap_or(root).display();
    let (loader, program) = (loader.display(), root.join(program));
    let mut text = format!(
        "#!/bin/sh\nexec '{loader}' --inhibit-cache --library-path '{libraries}' '{}' \"$@\"",
        program.display()
    );
    for (option, home) in homes {
        text += &format!(" '{option}{}'", root.join(home).display());
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_started_by_the_loader_that_came_with_it() {
        let root = Path::new("/t/root");
        let text =
            script(&root.join("usr/lib/m/ld-linux.so.2"), root, "bin/d", &[("--at=", "usr")]);
        assert_eq!(
            text,
            "#!/bin/sh\nexec '/t/root/usr/lib/m/ld-linux.so.2' --inhibit-cache --library-path \
             '/t/root/usr/lib/m' '/t/root/bin/d' \"$@\" '--at=/t/root/usr'\n"
        );
    }

    #[test]
    fn the_loader_lies_beside_its_c_library() {
        let folder = std::env::temp_dir().join(format!("sluice-loader-{}", std::process::id()));
        for (place, file) in [("a", "libc.so.6"), ("m-linux-gnu", "ld-linux-x.so.2")] {
            fs::create_dir_all(folder.join(place)).unwrap();
            fs::write(folder.join(place).join(file), "").unwrap();
        }
        let found = loader(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, Some(folder.join("m-linux-gnu/ld-linux-x.so.2")));
    }
}
