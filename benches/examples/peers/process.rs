//! A server that is a process, and ends with its turn.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::trouble::Trouble;

/// No server takes this long to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server; it is killed with the value.
pub(crate) struct Running {
    name: String,
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    errors: std::path::PathBuf,
}

impl Running {
    /// Starts `command`, whose errors go into a file in `dir`.
    pub(crate) fn start(mut command: Command, dir: &Path) -> Result<Self, Trouble> {
        let name = command.get_program().to_string_lossy().into_owned();
        let errors = dir.join("stderr");
        let file = File::create(&errors).map_err(Trouble::io("make a server's error file"))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        let spawned = command.spawn();
        let mut child =
            spawned.map_err(|source| Trouble::Spawn { program: name.clone(), source })?;
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            // Read to its end whether or not anybody listens: a full pipe would stop the server.
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Self { name, child, lines, said: Vec::new(), errors })
    }

    /// What follows `marker` on the next line that has it.
    pub(crate) fn line_after(&mut self, marker: &str) -> Result<String, Trouble> {
        loop {
            let line = match self.lines.recv_timeout(READY_TIMEOUT) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
                    let said = format!("{} {errors}", self.said.join(" | "));
                    return Err(Trouble::NotReady { program: self.name.clone(), said });
                }
            };
            if let Some((_, rest)) = line.split_once(marker) {
                return Ok(rest.trim().to_owned());
            }
            self.said.push(line);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("peers: {} {} may still run: {error}", self.name, self.child.id());
        }
    }
}
