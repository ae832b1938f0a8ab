//! How many files this process may open, and how many of them may be connections.

use crate::config::Settings;

/// File descriptors that connections leave to the log, the orders and the threads: a log that
/// can't open its next file has failed.
const DESCRIPTORS_RESERVED: usize = 256;

/// Connections that this process has no descriptors for would starve the log of them.
pub(super) fn bound_connections(settings: &mut Settings, descriptors_max: usize) {
    let mut left = descriptors_max.saturating_sub(DESCRIPTORS_RESERVED).max(2);
    let bound = |name, connections_max: &mut usize, share: usize| {
        if *connections_max > share {
            tracing::warn!(
                "{name}.connections_max is {share} instead of {connections_max}: this process may \
                 open {descriptors_max} files; raise the limit of open files"
            );
            *connections_max = share;
        }
    };
    if settings.resp_listen.is_some() {
        // Half at most, so that neither port is without any.
        bound("resp", &mut settings.resp.connections_max, left / 2);
        left -= settings.resp.connections_max;
    }
    bound("http", &mut settings.http.connections_max, left);
}

/// Sockets are descriptors: the soft limit of 1024 that shells give would be our bound. Returns
/// the limit that holds now.
pub(crate) fn raise_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("the limit of open files stays at {:?}: {error}", limit.current);
    }
    let now = getrlimit(Resource::Nofile).current;
    now.map_or(usize::MAX, |now| usize::try_from(now).unwrap_or(usize::MAX))
}
