//! Items of a snapshot that are not what this program would have written are refused, never
//! guessed over. That they hold all of the state is tested wherever state is made:
//! `whole_event_set` goes on from a reloaded shard after every event, `model_based` compares each
//! history's end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use engine::core::apply::apply;
use engine::core::control::Control;
use engine::core::digest::digest;
use engine::core::event::{
    Actor, Body, DeadLetterPolicy, Definition, Event, Figures, Front, LatePayment, ShardMarks,
};
use engine::core::ids::{ActivityId, Ordinal, Position, ReservationId, SkuId, UserId};
use engine::core::request::RequestHasher;
use engine::core::shard::{Shard, ShardSeed};
use engine::core::snapshot::{
    ControlLoader, IMAGE_KINDS, IMAGE_VERSION, Image, LoadError, ShardLoader, decode_image,
    encode_image, image_kind, walk_control,
};

const ACTOR: Actor<'static> = Actor { name: "admin", request_id: "r" };

fn seed() -> ShardSeed {
    ShardSeed { table_seed: 1, requests: RequestHasher::new(&[3; 16]) }
}

/// Activity 1 with as many reservations of one user.
fn shard(reservations: u32) -> Shard {
    let mut shard = Shard::new(seed());
    let activity = ActivityId::new(1).unwrap();
    let ordinal = Ordinal::new(1).unwrap();
    let definition = Definition {
        sku: SkuId::new(2).unwrap(),
        title: "phone",
        price: 100,
        per_user_limit: 1000,
        start_ms: 1,
        end_ms: 1_000_000,
        payment_ttl_ms: 60_000,
        late_payment: LatePayment::ReinstateOrRefund,
        dead_letter: DeadLetterPolicy::Rollback,
        publish_at_ms: 0,
    };
    let created =
        Body::ActivityCreated { activity, ordinal, total: 1000, definition, actor: ACTOR };
    apply(&mut shard, &Event { at_ms: 1, body: created }, 1).unwrap();
    for number in 1..=reservations {
        let reserved = Body::Reserved {
            activity,
            front: Front::Http,
            reservation: ReservationId::compose(ordinal, Position::new(number).unwrap()),
            user: UserId::new(7).unwrap(),
            quantity: 1,
            held: number,
            version: 1,
            figures: Figures { available: 1000 - number, locked: number, sold: 0 },
            request_id: &format!("r{number}"),
        };
        let seq = u64::from(number) + 1;
        apply(&mut shard, &Event { at_ms: u64::from(number) + 1, body: reserved }, seq).unwrap();
    }
    shard
}

fn load(items: &[(u8, Vec<u8>)], expected: u128, seq: u64) -> Result<Shard, LoadError> {
    let mut loader = ShardLoader::new(seed(), seq);
    loader.take(&support::images(items))?;
    let together = loader.finish(expected);
    // Whether items come one by one or together is nothing that a shard could tell.
    let mut loader = ShardLoader::new(seed(), seq);
    for item in items.chunks(1) {
        loader.take(&support::images(item))?;
    }
    let one_by_one = loader.finish(expected);
    assert_eq!(one_by_one.as_ref().map(digest), together.as_ref().map(digest));
    one_by_one
}

#[test]
fn a_user_with_a_long_chain_is_found_again_by_every_request() {
    let shard = shard(100);
    let loaded = support::reloaded(&shard, 99);
    let (before, after) = (shard.activity(ActivityId::new(1).unwrap()).unwrap(), &loaded);
    let after = after.activity(ActivityId::new(1).unwrap()).unwrap();
    for number in 1..=100 {
        let hash = shard.requests().hash(&format!("r{number}"));
        let user = UserId::new(7).unwrap();
        assert_eq!(after.find_request(user, hash), before.find_request(user, hash));
        assert!(after.find_request(user, hash).is_some());
    }
    assert_eq!(loaded.due_ms_min(), shard.due_ms_min());
}

#[test]
fn a_missing_repeated_or_moved_item_is_refused() {
    let shard = shard(3);
    let (items, whole) = (support::items(&shard), digest(&shard));
    assert!(load(&items, whole, shard.applied_seq()).is_ok());
    for missing in 0..items.len() {
        let mut fewer = items.clone();
        fewer.remove(missing);
        assert!(load(&fewer, whole, shard.applied_seq()).is_err(), "without item {missing}");
        let mut moved = items.clone();
        moved.swap(0, missing);
        let differs = load(&moved, whole, shard.applied_seq());
        assert_eq!(differs.is_err(), missing != 0, "item {missing} first");
    }
    let mut twice = items.clone();
    twice.extend(items.clone());
    let twice = load(&twice, whole, shard.applied_seq()).map(drop);
    assert_eq!(twice, Err(LoadError::Repeated(ActivityId::new(1).unwrap())));
    assert_eq!(load(&items, whole, 1).map(drop), Err(LoadError::Digest), "another sequence");
}

#[test]
fn a_chain_that_leads_to_another_user_s_reservation_is_refused() {
    let shard = shard(3);
    let (items, stranger) = (support::items(&shard), UserId::new(8).unwrap());
    let (mut links, mut lasts) = (0, 0);
    for at in 0..items.len() {
        let (kind, bytes) = &items[at];
        let mut image = decode_image(*kind, IMAGE_VERSION, bytes).unwrap();
        match &mut image {
            Image::Reservation { user, previous: Some(_), .. } => {
                links += 1;
                *user = stranger;
            }
            Image::User { user, last: Some(_), .. } => {
                lasts += 1;
                *user = stranger;
            }
            _ => continue,
        }
        let mut altered = items.clone();
        altered[at].1.clear();
        encode_image(&image, &mut altered[at].1);
        let mut loader = ShardLoader::new(seed(), shard.applied_seq());
        let refused = loader.take(&support::images(&altered));
        assert_eq!(refused, Err(LoadError::OutOfPlace { kind: *kind }), "{image:?}");
    }
    assert_eq!((links, lasts), (2, 1));
}

#[test]
fn controls_and_sinks_come_back() {
    let mut control = Control::default();
    let mut buffer = Vec::new();
    let bodies = [
        Body::ControlSet { key: "limits/ip", value: b"5", expires_ms: 0, actor: ACTOR },
        Body::ControlSet { key: "token/a", value: b"", expires_ms: 99, actor: ACTOR },
        Body::SinkAdvanced {
            sink: "sql",
            lsn: 9,
            shards: ShardMarks::encode(&[(0, 3), (5, 1)], &mut buffer),
        },
    ];
    for (seq, body) in (1..).zip(bodies) {
        control.apply(&Event { at_ms: 5, body }, seq).unwrap();
    }
    let mut loader = ControlLoader::new(3);
    let mut kinds = Vec::new();
    walk_control(&control, 5, &mut |image| {
        let mut bytes = Vec::new();
        encode_image(&image, &mut bytes);
        kinds.push(image_kind(&image));
        loader.take(&support::images(&[(image_kind(&image), bytes)]))
    })
    .unwrap();
    assert_eq!(loader.finish(control.digest()).unwrap(), (control, 5));
    assert!(kinds.iter().all(|kind| IMAGE_KINDS.iter().any(|(known, _)| known == kind)));
    assert!(decode_image(16, IMAGE_VERSION + 1, &[]).is_err(), "a newer version is no guess");
    assert!(decode_image(200, IMAGE_VERSION, &[]).is_err());
}
