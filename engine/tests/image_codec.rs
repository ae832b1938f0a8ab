//! The bytes of a snapshot's items: what was written by a released version is read by every later
//! one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use engine::core::event::{
    DeadLetterPolicy, Definition, Figures, LatePayment, RefundScope, RestoreReason, ShardMarks,
    Status,
};
use engine::core::ids::{ActivityId, Ordinal, Position, ReservationId, SkuId, UserId};
use engine::core::side::{DeadLetterState, PaymentStatus, RefundStatus};
use engine::core::snapshot::{
    IMAGE_KINDS, IMAGE_VERSION, Image, decode_image, encode_image, image_kind,
};

const HASH: u128 = 0x0F1E_2D3C_4B5A_6978_8796_A5B4_C3D2_E1F0;
const FIGURES: Figures = Figures { available: 900, locked: 80, sold: 20 };

fn definition() -> Definition<'static> {
    Definition {
        sku: SkuId::new(20_001).unwrap(),
        title: "Sale \u{79d2}",
        price: 4_999,
        per_user_limit: 6,
        start_ms: 1_700_000_001_000,
        end_ms: 1_700_000_002_000,
        payment_ttl_ms: 600_000,
        late_payment: LatePayment::ReinstateOrRefund,
        dead_letter: DeadLetterPolicy::Rollback,
        publish_at_ms: 1_700_000_000_500,
    }
}

/// An activity and its reservations.
fn sale() -> [Image<'static>; 4] {
    let (activity, user) = (ActivityId::new(30_001).unwrap(), UserId::new(10_007).unwrap());
    let ordinal = Ordinal::new(5).unwrap();
    let (created_ms, updated_ms) = (1_700_000_001_123, 1_700_000_001_456);
    [
        Image::Activity {
            activity,
            ordinal,
            version: 4,
            figures: FIGURES,
            total: 1_000,
            sold_before: 7,
            on_sale: true,
            paused: false,
            drained: true,
            schedule_over: false,
            unpaid_from: 66,
            definition: definition(),
        },
        Image::Reservation {
            reservation: ReservationId::compose(ordinal, Position::new(66).unwrap()),
            user,
            quantity: 2,
            status: Status::RolledBack(RestoreReason::Timeout),
            attempts: 3,
            created_ms,
            updated_ms,
            shard_seq: 0x1122_3344_5566_7788,
            request_hash: HASH,
            previous: Position::new(65),
        },
        Image::Adopted {
            reservation: adopted(),
            old_id: 77,
            user,
            quantity: 2,
            status: Status::Confirmed,
            attempts: 1,
            created_ms,
            updated_ms,
            shard_seq: 9,
            request_hash: HASH,
            order_no: "SO-77",
        },
        Image::User { user, held: 3, last: Position::new(66) },
    ]
}

/// A reservation whose id came from elsewhere.
fn adopted() -> ReservationId {
    ReservationId::new(0x0011_2233_4455_6677).unwrap()
}

/// What hangs on reservations, in every state.
fn beside() -> Vec<Image<'static>> {
    let (reservation, requested_ms) = (adopted(), 1_700_000_001_789);
    let refund = |status| Image::Refund {
        reservation,
        refund_no: "RF1",
        scope: RefundScope::Order,
        restock: true,
        free_limit: false,
        status,
    };
    let letter = |state, note| Image::DeadLetter { reservation, state, opened_ms: 5, note };
    let opening = |status, transaction| Image::Opening {
        reservation,
        attempt: 2,
        channel: "alipay",
        amount: 9_998,
        expires_ms: 1_700_000_009_000,
        status,
        transaction,
    };
    vec![
        Image::Payment { reservation, payment_no: "PAY1" },
        Image::Operation { op: "op-1", decrease: true, quantity: 5, version: 4, figures: FIGURES },
        refund(RefundStatus::Requested),
        refund(RefundStatus::Settled),
        refund(RefundStatus::Failed),
        letter(DeadLetterState::Open, "because"),
        letter(DeadLetterState::Delivered { shard_seq: 11 }, ""),
        letter(DeadLetterState::RolledBack, ""),
        Image::Archived {
            activity: ActivityId::new(30_002).unwrap(),
            ordinal: Ordinal::new(6).unwrap(),
            end_ms: 1_700_000_003_000,
        },
        opening(PaymentStatus::Pending, ""),
        opening(PaymentStatus::Paid, "T-1"),
        opening(PaymentStatus::Failed, ""),
        Image::Receipt { receipt: HASH, reservation },
        Image::OpenRefund {
            activity: ActivityId::new(30_001).unwrap(),
            reservation,
            refund_no: "RF2",
            user: UserId::new(10_007).unwrap(),
            scope: RefundScope::Order,
            restock: false,
            free_limit: true,
            channel: "alipay",
            payment_no: "PAY1",
            transaction: "T-1",
            amount: 4_999,
            requested_ms,
            shard_seq: 12,
        },
    ]
}

/// What the control lane holds; `marks` is where a sink's sequences lie.
fn control(marks: &mut Vec<u8>) -> [Image<'_>; 3] {
    let shards = ShardMarks::encode(&[(3, 77), (9, 0x0102_0304_0506_0708)], marks);
    [
        Image::Control { key: "limits/ip", value: b"{}", expires_ms: 99 },
        Image::Sink { sink: "sql", lsn: 88, shards },
        Image::LastDecision { at_ms: 1_700_000_004_000 },
    ]
}

/// Format version 1, for ever: where this differs, the format changed and needs a new version.
/// `SLUICE_GOLDEN=write` writes the file.
#[test]
fn the_bytes_of_version_1_stand_still() {
    let mut marks = Vec::new();
    let mut images = sale().to_vec();
    images.extend(beside());
    images.extend(control(&mut marks));
    let found: Vec<String> = images
        .iter()
        .map(|image| {
            let mut bytes = Vec::new();
            encode_image(image, &mut bytes);
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{} {hex}", image_kind(image))
        })
        .collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/images-v1.txt");
    if std::env::var("SLUICE_GOLDEN").as_deref() == Ok("write") {
        std::fs::write(path, found.join("\n") + "\n").unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    let golden: Vec<&str> = golden.lines().collect();
    assert_eq!(golden, found);
    for (line, image) in golden.iter().zip(&images) {
        let (kind, hex) = line.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        assert_eq!(decode_image(kind.parse().unwrap(), IMAGE_VERSION, &bytes), Ok(*image));
    }
    let missing =
        IMAGE_KINDS.iter().find(|(kind, _)| !images.iter().any(|it| image_kind(it) == *kind));
    assert_eq!(missing, None, "every kind stands in the golden file");
}
