//! A call of the library, as its caller writes it: bytes, well-formed or not.

use std::fmt;

/// The calls and how many arguments each takes, the activity and the time aside.
pub const ARGUMENTS: &[(&str, usize)] = &[
    ("sluice_reserve", 3),
    ("sluice_confirm", 2),
    ("sluice_restore", 1),
    ("sluice_warm", 6),
    ("sluice_publish", 0),
    ("sluice_unpublish", 0),
    ("sluice_pause", 0),
    ("sluice_resume", 0),
    ("sluice_decrease", 2),
    ("sluice_restock", 2),
    ("sluice_get", 1),
    ("sluice_activity", 0),
];

/// The calls that change nothing.
const READS: &[&str] = &["sluice_get", "sluice_activity"];

#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    pub activity: Vec<u8>,
    pub arguments: Vec<Vec<u8>>,
}

impl Call {
    pub fn new(name: &str, activity: &[u8], arguments: &[&[u8]]) -> Self {
        let known = ARGUMENTS.iter().find(|(known, _)| *known == name);
        let (name, _) = known.unwrap_or_else(|| panic!("no call {name}"));
        let arguments = arguments.iter().map(|argument| argument.to_vec()).collect();
        Self { name, activity: activity.to_vec(), arguments }
    }

    /// `name activity arguments..`, separated by spaces.
    pub fn parse(line: &str) -> Self {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        let [_, activity, arguments @ ..] = words.as_slice() else { panic!("no call: {line}") };
        Self::new(line.split(' ').next().unwrap(), activity, arguments)
    }

    /// The call, on the wire.
    pub fn command(&self) -> redis::Cmd {
        let mut command = redis::cmd(if READS.contains(&self.name) { "FCALL_RO" } else { "FCALL" });
        command.arg(self.name).arg(1).arg(&self.activity).arg(&self.arguments);
        command
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.activity.escape_ascii())?;
        self.arguments.iter().try_for_each(|word| write!(f, " \"{}\"", word.escape_ascii()))
    }
}
