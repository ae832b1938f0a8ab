//! Users who may not buy, as a loop knows them: asked about for every purchase, read anew whenever
//! a control of the engine has changed.

use std::collections::HashMap;

use engine::Engine;
use engine::core::ids::UserId;

/// Before a user's id, in the key of a control.
const PREFIX: &str = "blacklist/user/";

/// The users, each with the end of the ban: Unix milliseconds, 0 for never.
#[derive(Default)]
pub(super) struct Blacklist {
    users: HashMap<u64, u64>,
    /// Of the controls that were read; `None` before the first time.
    generation: Option<u64>,
}

impl Blacklist {
    /// Whether `user` may not buy.
    pub(super) fn holds(&mut self, engine: &Engine, user: UserId) -> bool {
        let generation = engine.controls_generation();
        if self.generation != Some(generation) {
            self.generation = Some(generation);
            let controls = engine.controls(PREFIX);
            let user = |key: &str| key.strip_prefix(PREFIX)?.parse().ok();
            let entries =
                controls.iter().map(|(key, setting)| Some((user(key)?, setting.expires_ms)));
            self.users = entries.flatten().collect();
        }
        // Nobody is on it, most of the time.
        !self.users.is_empty()
            && self.users.get(&user.get()).is_some_and(|ends| *ends == 0 || engine.now_ms() < *ends)
    }
}

#[cfg(test)]
mod tests {
    use engine::EngineOptions;
    use engine::core::event::Actor;

    use super::*;

    #[test]
    fn a_ban_counts_with_the_next_purchase_and_ends_when_it_is_lifted() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = EngineOptions::new(dir.path().join("data"));
        options.accept_file_system = true;
        options.segment_bytes = 4 << 20;
        let (engine, _) = Engine::open(options).unwrap();
        let (mut blacklist, user) = (Blacklist::default(), |id| UserId::new(id).unwrap());
        assert!(!blacklist.holds(&engine, user(7)));
        let actor = Actor { name: "1", request_id: "" };
        let set = engine.control_set(actor, "blacklist/user/7", b"", 0).unwrap();
        assert_eq!(set.wait().unwrap(), Ok(true));
        assert!(blacklist.holds(&engine, user(7)) && !blacklist.holds(&engine, user(77)));
        let lifted = engine.control_clear(actor, "blacklist/user/7").unwrap();
        assert_eq!(lifted.wait().unwrap(), Ok(true));
        assert!(!blacklist.holds(&engine, user(7)));
        engine.close().unwrap();
    }
}
