//! The rules alone: decide and apply, without log, lock or clock.

use engine::core::apply::{apply, apply_hashed};
use engine::core::command::{Command, Reserve};
use engine::core::decide::{Outcome, Purchase, decide, reserve};
use engine::core::event::Front;
use engine::core::ids::{ActivityId, Ordinal, UserId};
use engine::core::limits::UNITS_MAX;
use engine::core::request::RequestHasher;
use engine::core::shard::{Shard, ShardSeed};

use crate::{ACTOR, REQUEST_ID, definition};

/// A shard with the activity `id` on sale, after its record 2.
pub fn on_sale(id: ActivityId) -> Shard {
    let mut shard = Shard::new(ShardSeed { table_seed: 1, requests: RequestHasher::new(&[7; 16]) });
    let ordinal = Ordinal::new(1).unwrap();
    let create =
        Command::Create { actor: ACTOR, ordinal, total: UNITS_MAX, definition: definition() };
    for (seq, command) in [(1, create), (2, Command::Publish { actor: ACTOR })] {
        let Outcome::Accepted { events } = decide(&shard, id, &command, 1_000) else { panic!() };
        events.iter().for_each(|event| apply(&mut shard, event, seq).unwrap());
    }
    shard
}

/// `user` wants one unit.
pub fn command(user: u64, request_hash: u128) -> Reserve<'static> {
    let user = UserId::new(user).unwrap();
    Reserve { user, request_id: REQUEST_ID, request_hash, quantity: 1, front: Front::Api }
}

/// Sells `user` one unit in record `seq`.
pub fn buy(shard: &mut Shard, id: ActivityId, user: u64, hash: u128, seq: u64) {
    let Purchase::Accepted(_, event) = reserve(shard, id, &command(user, hash), 1_000) else {
        panic!()
    };
    apply_hashed(shard, &event, seq, hash).unwrap();
}
