//! The bytes of events: what is written is read back, what was never written is refused, and the
//! bytes of format version 1 stand still.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use engine::core::codec::{self, CodecError, FORMAT_VERSION};
use engine::core::event::{
    Actor, Body, DeadLetterPolicy, DeadLetterResolution, DecreaseKey, Definition, Event, Figures,
    Front, LatePayment, PaymentVerdict, RefundScope, RestoreReason, ShardMarks, Status,
};
use engine::core::ids::{ActivityId, Ordinal, Position, ReservationId, SkuId, UserId};
use engine::core::limits::{ID_MAX, PAYMENT_TTL_MS_MAX, SHARDS_MAX, TIME_MS_MAX, UNITS_MAX};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Takes a field out of its bounds.
type Edit = fn(&mut Parts);

/// A record's header in the log, which stands before an event's bytes.
const RECORD_HEADER_BYTES: usize = 16;

/// What events are made of.
#[derive(Clone, Debug)]
struct Parts {
    at_ms: u64,
    activity: u64,
    user: u64,
    sku: u64,
    ordinal: u32,
    position: u32,
    adopted: u64,
    quantity: u32,
    held: u32,
    version: u32,
    figures: [u32; 3],
    amount: u64,
    limit: u32,
    times: [u64; 3],
    payment_ttl_ms: u64,
    number: u64,
    attempt: u8,
    flags: [bool; 2],
    /// Chooses among the codes of each set.
    code: usize,
    id: String,
    short: String,
    name: String,
    title: String,
    note: String,
    body: Vec<u8>,
    marks: Vec<u8>,
}

fn text(bytes_max: usize) -> impl Strategy<Value = String> {
    // Characters of one to four bytes, cut to the bound at a character.
    vec(select(vec!['a', '0', ' ', '\u{e9}', '\u{79d2}', '\u{1f4a5}', '\0']), 0..=bytes_max)
        .prop_map(move |characters| {
            let mut text = String::new();
            for character in characters {
                if text.len() + character.len_utf8() <= bytes_max {
                    text.push(character);
                }
            }
            text
        })
}

fn id_text() -> impl Strategy<Value = String> {
    text(64).prop_map(|text| if text.is_empty() { "r".to_owned() } else { text })
}

fn figures() -> impl Strategy<Value = [u32; 3]> {
    (0..=UNITS_MAX).prop_flat_map(|available| {
        (Just(available), 0..=UNITS_MAX - available).prop_flat_map(|(available, locked)| {
            (0..=UNITS_MAX - available - locked).prop_map(move |sold| [available, locked, sold])
        })
    })
}

fn parts() -> impl Strategy<Value = Parts> {
    let ids = (1..=ID_MAX, 1..=ID_MAX, 1..=ID_MAX, 1u32..1 << 21, 1..=u32::MAX, 1..=ID_MAX);
    let units = (1..=UNITS_MAX, 1..=UNITS_MAX, 1..=u32::MAX, figures(), 0..=ID_MAX, 1..=UNITS_MAX);
    let times = (0..=TIME_MS_MAX, [0..=TIME_MS_MAX, 0..=TIME_MS_MAX, 0..=TIME_MS_MAX]);
    let small =
        (1000..=PAYMENT_TTL_MS_MAX, any::<u64>(), 0u8..=99, any::<[bool; 2]>(), 0usize..840);
    let name = text(32).prop_map(|text| if text.is_empty() { "sql".to_owned() } else { text });
    let marks = btree_map(any::<u16>(), any::<u64>(), 0..=usize::from(SHARDS_MAX));
    let texts =
        (id_text(), text(64), name, text(1020), text(256), vec(any::<u8>(), 0..=4096), marks);
    (ids, units, times, small, texts).prop_map(|(ids, units, times, small, texts)| {
        let mut marks = Vec::new();
        ShardMarks::encode(&texts.6.into_iter().collect::<Vec<_>>(), &mut marks);
        Parts {
            at_ms: times.0,
            activity: ids.0,
            user: ids.1,
            sku: ids.2,
            ordinal: ids.3,
            position: ids.4,
            adopted: ids.5,
            quantity: units.0,
            held: units.1,
            version: units.2,
            figures: units.3,
            amount: units.4,
            limit: units.5,
            times: times.1,
            payment_ttl_ms: small.0,
            number: small.1,
            attempt: small.2,
            flags: small.3,
            code: small.4,
            id: texts.0,
            short: texts.1,
            name: texts.2,
            title: texts.3,
            note: texts.4,
            body: texts.5,
            marks,
        }
    })
}

/// One event of every kind, in order of kind.
fn bodies(it: &Parts) -> Vec<Body<'_>> {
    let activity = ActivityId::new(it.activity).unwrap();
    let ordinal = Ordinal::new(it.ordinal).unwrap();
    let own = ReservationId::compose(ordinal, Position::new(it.position).unwrap());
    let any = ReservationId::new(it.adopted).unwrap();
    let user = UserId::new(it.user).unwrap();
    let (quantity, held, version) = (it.quantity, it.held, it.version);
    let [available, locked, sold] = it.figures;
    let figures = Figures { available, locked, sold };
    let actor = Actor { name: &it.short, request_id: &it.id };
    let maybe_actor = if it.short.is_empty() { Actor::NONE } else { actor };
    let definition = Definition {
        sku: SkuId::new(it.sku).unwrap(),
        title: &it.title,
        price: it.amount,
        per_user_limit: it.limit,
        start_ms: it.times[0],
        end_ms: it.times[1],
        payment_ttl_ms: it.payment_ttl_ms,
        late_payment: LatePayment::ALL[it.code % LatePayment::ALL.len()],
        dead_letter: DeadLetterPolicy::ALL[it.code % DeadLetterPolicy::ALL.len()],
        publish_at_ms: it.times[2],
    };
    let op = if it.flags[0] { DecreaseKey::Edit } else { DecreaseKey::Caller(&it.id) };
    let front = Front::ALL[it.code % Front::ALL.len()];
    let verdict = PaymentVerdict::ALL[it.code % PaymentVerdict::ALL.len()];
    let reason = RestoreReason::ALL[it.code % RestoreReason::ALL.len()];
    let resolution = DeadLetterResolution::ALL[it.code % DeadLetterResolution::ALL.len()];
    let status = Status::from_code(u8::try_from(it.code % 7).unwrap()).unwrap();
    let [restock, free_limit] = it.flags;
    let scope = RefundScope::ALL[it.code % RefundScope::ALL.len()];
    let (payment_no, refund_no, request_id) = (&*it.id, &*it.id, &*it.id);
    let (note, key) = (&*it.note, &*it.id);
    let at = if it.flags[1] { Some(activity) } else { None };
    let shards = ShardMarks::parse(&it.marks).unwrap();
    vec![
        Body::ActivityCreated { activity, actor, ordinal, total: quantity, definition },
        Body::ActivityEdited { activity, actor, version, figures, definition },
        Body::Published { activity, actor },
        Body::Unpublished { activity, actor },
        Body::Paused { activity, actor },
        Body::Resumed { activity, actor },
        Body::Drained { activity, actor },
        Body::Restocked { activity, actor, op: &it.id, quantity, version, figures },
        Body::Decreased { activity, actor, op, quantity, version, figures },
        Body::Archived { activity },
        Body::Reserved {
            activity,
            front,
            reservation: own,
            user,
            quantity,
            held,
            version,
            figures,
            request_id,
        },
        Body::PaymentOpened {
            activity,
            reservation: any,
            attempt: it.attempt,
            channel: &it.name,
            amount: it.amount,
            expires_ms: it.times[0],
        },
        Body::PaymentRecorded {
            activity: at,
            reservation: at.map(|_| any),
            channel: &it.name,
            payment_no,
            transaction: &it.short,
            amount: it.amount,
            verdict,
            body: &it.body,
        },
        Body::Confirmed {
            activity,
            reservation: any,
            user,
            quantity,
            held,
            version,
            figures,
            payment_no,
        },
        Body::Reinstated {
            activity,
            reservation: any,
            user,
            quantity,
            held,
            version,
            figures,
            payment_no,
        },
        Body::Restored {
            activity,
            reservation: any,
            user,
            quantity,
            held,
            version,
            figures,
            reason,
            actor: maybe_actor,
        },
        Body::RefundRequested {
            activity,
            actor: maybe_actor,
            reservation: any,
            user,
            refund_no,
            scope,
            restock,
            free_limit,
            channel: &it.name,
            payment_no,
            transaction: &it.short,
            amount: it.amount,
            note,
        },
        Body::RefundSettled { activity, reservation: any, user, held, version, figures, refund_no },
        Body::RefundFailed { activity, reservation: any, refund_no, note },
        Body::DeadLettered { activity, reservation: any, note },
        Body::DeadLetterResolved { activity, reservation: any, resolution, actor: maybe_actor },
        Body::SinkAdvanced { sink: &it.name, lsn: it.number, shards },
        Body::ActivityAdopted {
            activity,
            ordinal,
            version,
            figures,
            on_sale: it.flags[0],
            definition,
        },
        Body::ReservationAdopted {
            activity,
            reservation: any,
            old_id: it.number,
            order_no: &it.short[..it.short.floor_char_boundary(62)],
            status,
            user,
            quantity,
            created_ms: it.times[0],
            updated_ms: it.times[1],
            held,
            figures,
            request_id,
            request_hash: u128::from(it.number) << 64 | u128::from(it.amount),
            payment_no: &it.short,
        },
        Body::ControlSet { actor, key, value: &it.body, expires_ms: it.times[0] },
        Body::ControlCleared { actor, key },
    ]
}

fn events(parts: &Parts) -> Vec<Event<'_>> {
    bodies(parts).into_iter().map(|body| Event { at_ms: parts.at_ms, body }).collect()
}

fn encoded(event: &Event<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(event, &mut bytes);
    bytes
}

fn decoded(kind: u8, bytes: &[u8]) -> Result<Event<'_>, CodecError> {
    codec::decode(kind, FORMAT_VERSION, bytes)
}

proptest! {
    #[test]
    fn every_kind_is_read_back_as_it_was_written(parts in parts()) {
        let mut kinds = BTreeSet::new();
        for event in events(&parts) {
            prop_assert_eq!(codec::check(&event), Ok(()));
            let (kind, bytes) = (codec::kind(&event.body), encoded(&event));
            prop_assert_eq!(decoded(kind, &bytes), Ok(event));
            kinds.insert(kind);
        }
        prop_assert_eq!(kinds.len(), codec::KINDS.len(), "a kind is not tried here");
    }

    /// So bytes stand for exactly one event, and no event has two spellings.
    #[test]
    fn what_is_read_is_what_would_be_written(
        parts in parts(),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<Index>()),
        more in vec(any::<u8>(), 0..3),
        other_kind in any::<u8>(),
    ) {
        for event in events(&parts) {
            let mut bytes = encoded(&event);
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] ^= byte;
            }
            bytes.truncate(cut.as_ref().map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
            bytes.extend(&more);
            for kind in [codec::kind(&event.body), other_kind] {
                if let Ok(found) = decoded(kind, &bytes) {
                    prop_assert_eq!(codec::kind(&found.body), kind);
                    prop_assert_eq!(encoded(&found), &*bytes);
                }
            }
        }
    }

    #[test]
    fn garbage_is_refused_or_read_but_never_panics(
        kind in any::<u8>(),
        version in 0u8..3,
        bytes in vec(any::<u8>(), 0..200),
    ) {
        if let Ok(event) = codec::decode(kind, version, &bytes) {
            prop_assert_eq!(encoded(&event), bytes);
        }
    }
}

#[test]
fn every_shorter_form_is_truncated_and_every_longer_one_trails() {
    for event in events(&sample()) {
        let (kind, mut bytes) = (codec::kind(&event.body), encoded(&event));
        for length in 0..bytes.len() {
            let error = decoded(kind, &bytes[..length]).unwrap_err();
            assert!(matches!(error, CodecError::Truncated { .. }), "{kind} {length}: {error}");
        }
        bytes.push(0);
        assert_eq!(decoded(kind, &bytes), Err(CodecError::Trailing { kind, bytes: 1 }));
    }
}

#[test]
fn a_purchase_is_told_from_every_other_event_and_says_what_the_event_says() {
    let parts = sample();
    for event in events(&parts) {
        let (kind, bytes) = (codec::kind(&event.body), encoded(&event));
        let expected = match event.body {
            Body::Reserved { activity, user, request_id, .. } => {
                Some((event.at_ms, activity, user, request_id.as_bytes()))
            }
            _ => None,
        };
        let read = codec::Purchase::read(kind, FORMAT_VERSION, &bytes);
        let read = read.map(|it| (it.at_ms, it.activity, it.user, it.request_id));
        assert_eq!(read, expected);
    }
}

#[test]
fn unknown_kinds_and_versions_are_named() {
    let bytes = encoded(&events(&sample())[0]);
    assert_eq!(codec::decode(0, 1, &bytes), Err(CodecError::UnknownKind { kind: 0 }));
    assert_eq!(codec::decode(200, 9, &bytes), Err(CodecError::UnknownKind { kind: 200 }));
    let version = FORMAT_VERSION + 1;
    assert_eq!(
        codec::decode(1, version, &bytes),
        Err(CodecError::UnknownVersion { kind: 1, version })
    );
}

#[test]
fn a_field_outside_its_bounds_is_neither_written_nor_read() {
    let edits: &[(&str, Edit)] = &[
        ("at_ms", |it| it.at_ms = TIME_MS_MAX + 1),
        ("quantity", |it| it.quantity = 0),
        ("quantity", |it| it.quantity = UNITS_MAX + 1),
        ("held", |it| it.held = UNITS_MAX + 1),
        ("version", |it| it.version = 0),
        ("figures", |it| it.figures = [UNITS_MAX, 1, 0]),
        ("definition", |it| it.payment_ttl_ms = 999),
        ("definition", |it| it.title = "x".repeat(1021)),
        ("definition", |it| it.amount = ID_MAX + 1),
        ("request_id", |it| it.id = String::new()),
        ("request_id", |it| it.id = "x".repeat(65)),
        ("shards", |it| {
            ShardMarks::encode(&[(2, 1), (2, 2)], &mut it.marks);
        }),
    ];
    for (field, edit) in edits {
        let mut parts = sample();
        edit(&mut parts);
        let refused = events(&parts).iter().filter_map(|it| codec::check(it).err()).any(
            |error| matches!(error, CodecError::Invalid { field: found, .. } if found == *field),
        );
        assert!(refused, "{field}");
    }

    // The same on the way in: the bytes of `quantity` in a `Reserved`.
    let good = encoded(&events(&sample())[10]);
    let quantity = 8 + 8 + 8 + 8;
    for value in [0, UNITS_MAX + 1, u32::MAX] {
        let mut bytes = good.clone();
        bytes[quantity..quantity + 4].copy_from_slice(&value.to_le_bytes());
        let refused = Err(CodecError::Invalid { kind: 16, field: "quantity" });
        assert_eq!(decoded(16, &bytes), refused, "{value}");
    }
    let mut bytes = good;
    let last = bytes.len() - 1;
    bytes[last] = 0xFF;
    assert_eq!(decoded(16, &bytes), Err(CodecError::Invalid { kind: 16, field: "request_id" }));
}

#[test]
fn an_actor_that_may_be_none_is_named_or_is_none_altogether() {
    let parts = sample();
    let resolved = |name, request_id| {
        let activity = ActivityId::new(parts.activity).unwrap();
        let reservation = ReservationId::new(parts.adopted).unwrap();
        let (resolution, actor) = (DeadLetterResolution::Delivered, Actor { name, request_id });
        let body = Body::DeadLetterResolved { activity, reservation, resolution, actor };
        Event { at_ms: parts.at_ms, body }
    };
    let refused = CodecError::Invalid { kind: 33, field: "actor" };
    assert_eq!(codec::check(&resolved("", "req")), Err(refused));
    let (none, named) = (encoded(&resolved("", "")), encoded(&resolved("ops", "")));
    assert_eq!(decoded(33, &none), Ok(resolved("", "")));
    assert_eq!(decoded(33, &named), Ok(resolved("ops", "")));
    assert_eq!(none.len(), 8 + 8 + 8 + 1 + 2, "two bytes where no operator was");
    let nameless = [&none[..none.len() - 1], b"\x03req"].concat();
    assert_eq!(decoded(33, &nameless), Err(refused));
}

#[test]
#[should_panic(expected = "outside its bounds")]
fn to_write_what_could_not_be_read_panics() {
    let parts = Parts { quantity: 0, ..sample() };
    encoded(&events(&parts)[10]);
}

#[test]
fn a_reservation_with_a_uuid_fits_a_record_of_112_bytes() {
    let parts = Parts { id: "123e4567-e89b-12d3-a456-426614174000".to_owned(), ..sample() };
    let reserved = &events(&parts)[10];
    assert!(matches!(reserved.body, Body::Reserved { .. }));
    let bytes = RECORD_HEADER_BYTES + encoded(reserved).len();
    assert!(bytes <= 112, "{bytes} bytes");
}

/// The event behind the golden bytes. Every field differs from its neighbours.
fn sample() -> Parts {
    let mut marks = Vec::new();
    ShardMarks::encode(&[(3, 77), (9, 0x0102_0304_0506_0708)], &mut marks);
    Parts {
        at_ms: 1_700_000_000_123,
        activity: 30_001,
        user: 10_007,
        sku: 20_001,
        ordinal: 5,
        position: 66,
        adopted: 0x0011_2233_4455_6677,
        quantity: 2,
        held: 3,
        version: 4,
        figures: [900, 80, 20],
        amount: 4_999,
        limit: 6,
        times: [1_700_000_001_000, 1_700_000_002_000, 1_700_000_003_000],
        payment_ttl_ms: 600_000,
        number: 0x1122_3344_5566_7788,
        attempt: 1,
        flags: [true, false],
        code: 1,
        id: "req-\u{79d2}".to_owned(),
        short: "ops".to_owned(),
        name: "sql".to_owned(),
        title: "Sale".to_owned(),
        note: "because".to_owned(),
        body: vec![0x7B, 0x7D],
        marks,
    }
}

/// Format version 1, for ever: where this differs, the format changed and needs a new version.
#[test]
fn the_bytes_of_version_1_stand_still() {
    let parts = sample();
    let events = events(&parts);
    let found: Vec<String> = events
        .iter()
        .map(|event| {
            let hex: String = encoded(event).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{} {hex}", codec::kind(&event.body))
        })
        .collect();
    let golden: Vec<&str> = include_str!("golden/events-v1.txt").lines().collect();
    assert_eq!(golden, found);
    for (line, event) in golden.iter().zip(events) {
        let (kind, hex) = line.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        assert_eq!(decoded(kind.parse().unwrap(), &bytes), Ok(event));
    }
}
