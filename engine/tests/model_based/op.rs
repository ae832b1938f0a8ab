//! What a history is made of. Small numbers, so that histories meet themselves; and a few hostile
//! ones.

use engine::core::event::{DeadLetterPolicy, LatePayment, RestoreReason};
use proptest::prelude::*;

/// Activities are numbered from 1; so are their ordinals.
pub(crate) const ACTIVITIES: u64 = 3;

/// The numbers of a definition, chosen from small sets.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) title: &'static str,
    pub(crate) price: u64,
    pub(crate) per_user_limit: u32,
    pub(crate) start_ms: u64,
    pub(crate) end_ms: u64,
    pub(crate) payment_ttl_ms: u64,
    pub(crate) late_payment: LatePayment,
    pub(crate) dead_letter: DeadLetterPolicy,
    pub(crate) publish_at_ms: u64,
}

/// One step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        activity: u64,
        ordinal: u32,
        total: u32,
        terms: Terms,
    },
    Edit {
        activity: u64,
        version: Option<u32>,
        total: u32,
        terms: Terms,
    },
    /// An edit of what is there: another title, a total so much lower.
    Trim {
        activity: u64,
        title: Option<&'static str>,
        less: u32,
    },
    Publish {
        activity: u64,
    },
    Unpublish {
        activity: u64,
    },
    Pause {
        activity: u64,
    },
    Resume {
        activity: u64,
    },
    Drain {
        activity: u64,
    },
    Restock {
        activity: u64,
        op: String,
        quantity: u32,
    },
    Decrease {
        activity: u64,
        op: String,
        quantity: u32,
    },
    Reserve {
        activity: u64,
        user: u64,
        request_id: String,
        quantity: u32,
    },
    /// The last purchase's request once more.
    Retry {
        quantity: Option<u32>,
    },
    /// Buys and gives back, so many times.
    Churn {
        activity: u64,
        user: u64,
        times: u32,
    },
    Confirm {
        activity: u64,
        ordinal: u32,
        position: u32,
        payment_no: String,
    },
    Restore {
        activity: u64,
        ordinal: u32,
        position: u32,
        owner: Option<u64>,
        reason: RestoreReason,
        /// Whether an operator is named.
        named: bool,
    },
    /// One step of the order's life.
    Order {
        activity: u64,
        ordinal: u32,
        position: u32,
        step: Step,
    },
    /// What most buyers do.
    OpenAndPay {
        activity: u64,
        ordinal: u32,
        position: u32,
        pay: Step,
    },
    /// The provider answers for a refund: one of those that are open, or none.
    EndRefund {
        activity: u64,
        refund: usize,
        failed: bool,
    },
    /// Gives back what is overdue, and archives what is over, so many days later.
    Archive {
        activity: u64,
        days: u64,
        covered: bool,
    },
    /// Gives back what is overdue, to the end.
    Expire {
        activity: u64,
    },
    Wait {
        ms: u64,
    },
    /// The server restarts: a new grace begins.
    Restart,
}

/// What may be done to an order.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Open {
        stranger: bool,
        channel: &'static str,
        ttl_ms: u64,
    },
    /// The payment of that number, or the one opened last.
    Pay {
        attempt: Option<u8>,
        channel: &'static str,
        transaction: String,
        wrong: bool,
        paid: bool,
    },
    Refund {
        refund_no: &'static str,
        restock: bool,
        free_limit: bool,
        named: bool,
    },
    /// `stale`: as a sink that had not yet heard of a retry.
    DeadLetter {
        stale: bool,
    },
    Retry {
        named: bool,
    },
    RollBack {
        named: bool,
    },
}

/// When every history begins; windows lie around it.
pub(crate) const BEGIN_MS: u64 = 1_000_000;

fn activity() -> impl Strategy<Value = u64> {
    prop_oneof![30 => 1..=ACTIVITIES, 1 => Just(99), 1 => Just((1 << 53) - 1)]
}

fn user() -> impl Strategy<Value = u64> {
    prop_oneof![30 => 1u64..=4, 1 => Just((1 << 53) - 1)]
}

/// Units, and what is none.
fn quantity() -> impl Strategy<Value = u32> {
    prop_oneof![
        40 => Just(1u32),
        20 => 2u32..=4,
        1 => prop::sample::select(vec![0, i32::MAX as u32, i32::MAX as u32 + 1, u32::MAX]),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        30 => (0u32..12).prop_map(|number| format!("r{number}")),
        2 => Just("\u{79d2}\u{6740}".to_owned()),
        1 => prop::sample::select(vec![0usize, 1, 64, 65]).prop_map(|bytes| "x".repeat(bytes)),
    ]
}

fn total() -> impl Strategy<Value = u32> {
    prop_oneof![
        60 => 1u32..=12,
        8 => 30u32..=60,
        1 => prop::sample::select(vec![0, i32::MAX as u32, i32::MAX as u32 + 1, u32::MAX]),
    ]
}

/// One that the steps of the clock meet exactly, before and after: the edges of a window.
fn instant() -> impl Strategy<Value = u64> {
    let steps = vec![0, 1, 2, 999, 1_000, 1_001, 5_000, 6_000, 30_000, 31_000, 120_000];
    prop::sample::select(steps).prop_map(|ms| BEGIN_MS + ms)
}

fn terms() -> impl Strategy<Value = Terms> {
    let amounts = (
        prop_oneof![
            60 => 0u64..=100,
            1 => prop::sample::select(vec![(1 << 53) - 1, 1 << 53, u64::MAX, (1 << 52)]),
        ],
        prop_oneof![
            90 => 1u32..=4,
            9 => Just(i32::MAX as u32),
            1 => prop::sample::select(vec![0, u32::MAX]),
        ],
    );
    let times = (
        prop_oneof![
            30 => Just(0u64),
            30 => Just(BEGIN_MS),
            10 => instant(),
            10 => BEGIN_MS..BEGIN_MS + 20_000,
            1 => prop::sample::select(vec![253_402_300_799_999, 253_402_300_800_000, u64::MAX]),
        ],
        prop_oneof![
            50 => Just(253_402_300_799_999u64),
            15 => instant(),
            15 => BEGIN_MS..BEGIN_MS + 400_000,
            1 => prop::sample::select(vec![0, 253_402_300_800_000, u64::MAX]),
        ],
        prop_oneof![
            90 => prop::sample::select(vec![1_000u64, 5_000, 60_000, 600_000]),
            1 => prop::sample::select(vec![0, 999, 2_592_000_000, 2_592_000_001, u64::MAX]),
        ],
    );
    let policies = (
        prop::sample::select(LatePayment::ALL.to_vec()),
        prop::sample::select(DeadLetterPolicy::ALL.to_vec()),
        prop::sample::select(vec!["", "one", "\u{4e8c}"]),
        prop_oneof![
            40 => Just(0u64),
            20 => instant(),
            1 => prop::sample::select(vec![253_402_300_799_999, 253_402_300_800_000, u64::MAX]),
        ],
    );
    (amounts, times, policies).prop_map(|(amounts, times, policies)| Terms {
        title: policies.2,
        price: amounts.0,
        per_user_limit: amounts.1,
        start_ms: times.0,
        end_ms: times.1,
        payment_ttl_ms: times.2,
        late_payment: policies.0,
        dead_letter: policies.1,
        publish_at_ms: policies.3,
    })
}

/// How a history opens: most often with activities to buy from.
pub(crate) fn openings() -> impl Strategy<Value = Vec<Op>> {
    let opening = |activity: u64| {
        (total(), terms(), prop::bool::weighted(0.95), prop::bool::weighted(0.9)).prop_map(
            move |(total, terms, created, published)| {
                let ordinal = ordinal(activity);
                let create = Op::Create { activity, ordinal, total, terms };
                let publish = Op::Publish { activity };
                let ops = [created.then_some(create), published.then_some(publish)];
                ops.into_iter().flatten().collect::<Vec<_>>()
            },
        )
    };
    (opening(1), opening(2), opening(3)).prop_map(|(one, two, three)| [one, two, three].concat())
}

/// The ordinal of an activity: its number.
fn ordinal(activity: u64) -> u32 {
    u32::try_from(activity).unwrap()
}

fn retitle() -> impl Strategy<Value = Option<&'static str>> {
    prop::option::of(prop::sample::select(vec!["", "one", "\u{4e8c}", "four"]))
}

fn reservation() -> impl Strategy<Value = (u64, u32, u32)> {
    prop_oneof![
        // Of the activity that it names.
        30 => (1..=ACTIVITIES, any::<u32>())
            .prop_map(|(activity, position)| (activity, ordinal(activity), position)),
        2 => (activity(), 0u32..=4, prop::sample::select(vec![1, 2, 40, 41, u32::MAX])),
    ]
}

fn channel() -> impl Strategy<Value = &'static str> {
    let others = prop::sample::select(vec!["", "x", LONG]);
    prop_oneof![30 => Just("mock"), 3 => Just("card"), 1 => others]
}

/// A channel's name of 33 bytes.
const LONG: &str = "ccccccccccccccccccccccccccccccccc";

fn pay() -> impl Strategy<Value = Step> {
    let attempt = prop_oneof![
        10 => Just(None),
        3 => (1u8..=2).prop_map(Some),
        1 => prop::sample::select(vec![0, 3, 99]).prop_map(Some),
    ];
    let transaction = prop_oneof![
        30 => (0u32..200).prop_map(|number| format!("t{number}")),
        1 => prop::sample::select(vec![0usize, 65]).prop_map(|bytes| "t".repeat(bytes)),
    ];
    let chances = (prop::bool::weighted(0.05), prop::bool::weighted(0.9));
    (attempt, channel(), transaction, chances).prop_map(
        |(attempt, channel, transaction, (wrong, paid))| Step::Pay {
            attempt,
            channel,
            transaction,
            wrong,
            paid,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let rarely = || prop::bool::weighted(0.05);
    let mostly = || prop::bool::weighted(0.95);
    let refund_nos = vec!["f1", "f2", "f3", "f3", "", "auto-1"];
    prop_oneof![
        24 => (
            rarely(),
            channel(),
            prop::sample::select(vec![1_000u64, 5_000, 600_000, 999, 2_592_000_001]),
        )
            .prop_map(|(stranger, channel, ttl_ms)| Step::Open { stranger, channel, ttl_ms }),
        20 => pay().boxed(),
        16 => (prop::sample::select(refund_nos), any::<bool>(), any::<bool>(), mostly()).prop_map(
            |(refund_no, restock, free_limit, named)| {
                Step::Refund { refund_no, restock, free_limit, named }
            }
        ),
        10 => any::<bool>().prop_map(|stale| Step::DeadLetter { stale }),
        5 => mostly().prop_map(|named| Step::Retry { named }),
        5 => mostly().prop_map(|named| Step::RollBack { named }),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let operator = prop_oneof![
        3 => (activity(), 0u32..=5, total(), terms()).prop_map(|(activity, ordinal, total, terms)| {
            Op::Create { activity, ordinal, total, terms }
        }),
        4 => (activity(), prop::option::of(1u32..=4), total(), terms()).prop_map(
            |(activity, version, total, terms)| Op::Edit { activity, version, total, terms }
        ),
        4 => (activity(), retitle(), 0u32..=3)
            .prop_map(|(activity, title, less)| Op::Trim { activity, title, less }),
        4 => activity().prop_map(|activity| Op::Publish { activity }),
        1 => activity().prop_map(|activity| Op::Unpublish { activity }),
        1 => activity().prop_map(|activity| Op::Pause { activity }),
        5 => activity().prop_map(|activity| Op::Resume { activity }),
        1 => activity().prop_map(|activity| Op::Drain { activity }),
        4 => (activity(), key(), quantity())
            .prop_map(|(activity, op, quantity)| Op::Restock { activity, op, quantity }),
        3 => (activity(), key(), quantity())
            .prop_map(|(activity, op, quantity)| Op::Decrease { activity, op, quantity }),
    ];
    let shopper = prop_oneof![
        40 => (activity(), user(), key(), quantity()).prop_map(
            |(activity, user, request_id, quantity)| {
                Op::Reserve { activity, user, request_id, quantity }
            }
        ),
        8 => prop::option::weighted(0.3, quantity()).prop_map(|quantity| Op::Retry { quantity }),
        2 => (activity(), user(), 1u32..=20)
            .prop_map(|(activity, user, times)| Op::Churn { activity, user, times }),
        10 => (reservation(), key()).prop_map(|((activity, ordinal, position), payment_no)| {
            Op::Confirm { activity, ordinal, position, payment_no }
        }),
        12 => (
            reservation(),
            prop::option::of(user()),
            prop::sample::select(RestoreReason::ALL.to_vec()),
            prop::bool::weighted(0.1),
        )
            .prop_map(|((activity, ordinal, position), owner, reason, astray)| {
                // Now and then a name is missing, or stands where none belongs.
                let named = (reason == RestoreReason::Admin) != astray;
                Op::Restore { activity, ordinal, position, owner, reason, named }
            }),
    ];
    let time = prop_oneof![
        8 => activity().prop_map(|activity| Op::Expire { activity }),
        8 => prop::sample::select(vec![0u64, 1, 999, 1_000, 5_000, 30_000, 120_000])
            .prop_map(|ms| Op::Wait { ms }),
        1 => Just(Op::Restart),
        1 => (1..=ACTIVITIES, 0u64..=1, prop::bool::weighted(0.9))
            .prop_map(|(activity, days, covered)| Op::Archive { activity, days, covered }),
    ];
    let order = prop_oneof![
        12 => (reservation(), step().boxed()).prop_map(|((activity, ordinal, position), step)| {
            Op::Order { activity, ordinal, position, step }
        }),
        8 => (reservation(), pay().boxed()).prop_map(|((activity, ordinal, position), pay)| {
            Op::OpenAndPay { activity, ordinal, position, pay }
        }),
        2 => (1..=ACTIVITIES, 0usize..20, prop::bool::weighted(0.3))
            .prop_map(|(activity, refund, failed)| Op::EndRefund { activity, refund, failed }),
    ];
    // Boxed: a tree of all of them by value is more than a thread's stack.
    let (operator, shopper, order) = (operator.boxed(), shopper.boxed(), order.boxed());
    prop_oneof![20 => operator, 60 => shopper, 40 => order, 20 => time]
}
