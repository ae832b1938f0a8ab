//! The users of the Redis port: where the list comes from.

use std::fs;

use super::{ConfigError, Resp};
use crate::resp::access::{Users, UsersError};

/// The users that the settings or their file name; nobody where neither is given.
///
/// # Errors
/// The list is given twice, its file can't be read, it can't be used, or it names nobody.
pub(crate) fn resp_users(settings: &Resp) -> Result<Users, ConfigError> {
    let text = match (&settings.users, &settings.users_file) {
        (None, None) => return Ok(Users::default()),
        (Some(_), Some(_)) => return Err(ConfigError::UsersTwice),
        (Some(text), None) => text.text().to_owned(),
        (None, Some(path)) => fs::read_to_string(path).map_err(|source| ConfigError::File {
            op: "read the users of the Redis port from",
            path: path.clone(),
            source,
        })?,
    };
    let users = Users::parse(&text)?;
    // Without a user everybody would be let in, which is not what a list was given for.
    if users.is_empty() { Err(UsersError::Nobody.into()) } else { Ok(users) }
}
