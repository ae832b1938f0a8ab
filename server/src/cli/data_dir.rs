//! Is there a data directory at all? The offline commands must not take a misspelt path for an
//! empty log.

use std::path::{Path, PathBuf};

/// Why a path is no data directory.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoDataDir {
    /// Nothing is there.
    #[error("there is no data directory at {}: give --data-dir", .0.display())]
    Missing(PathBuf),
    /// Something else is there.
    #[error("{} is not a directory: give --data-dir", .0.display())]
    NotADirectory(PathBuf),
    /// It holds no log.
    #[error("{} holds no log: it is not a data directory, or no server ever ran on it", .0.display())]
    NoLog(PathBuf),
}

/// Says why `path` is no data directory, where it is none.
///
/// # Errors
/// [`NoDataDir`].
pub(super) fn require(path: &Path) -> Result<(), NoDataDir> {
    if !path.exists() {
        return Err(NoDataDir::Missing(path.to_path_buf()));
    }
    if !path.is_dir() {
        return Err(NoDataDir::NotADirectory(path.to_path_buf()));
    }
    // Either of them makes it a data directory; one without the other is damage, for the log's
    // own rules to name.
    let has_log = path.join("CONTROL").exists() || path.join("wal").exists();
    if has_log { Ok(()) } else { Err(NoDataDir::NoLog(path.to_path_buf())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_log_is_no_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        assert!(matches!(require(&path.join("none")), Err(NoDataDir::Missing(_))));
        std::fs::write(path.join("file"), "").unwrap();
        assert!(matches!(require(&path.join("file")), Err(NoDataDir::NotADirectory(_))));
        assert!(matches!(require(path), Err(NoDataDir::NoLog(_))));
        std::fs::write(path.join("CONTROL"), "").unwrap();
        assert!(require(path).is_ok());
    }
}
