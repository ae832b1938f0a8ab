//! Random histories: which calls, in which order, at which instants.
//!
//! A step is a number; the call it stands for follows from it and from the reservations made so
//! far. So a history from which steps are taken away is still a history, and a failing one
//! shrinks.

use super::call::Call;

/// Calls of one history.
const STEPS: usize = 200;

/// The windows of the activities, relative to the history's beginning, inclusive: one that lasts,
/// one whose end most histories pass, one of a single instant.
const WINDOWS_MS: [(u64, u64); 3] =
    [(0, 600_000), (BEGIN_MS, BEGIN_MS + 1000), (BEGIN_MS + 700, BEGIN_MS + 700)];

/// Before it, windows can begin.
const BEGIN_MS: u64 = 60_000;

/// How far the clock goes from one call to the next.
const TICK_MS: u64 = 10;

/// The first ids of each kind: small ones, and those at the bounds. More follow densely.
const ACTIVITIES: [u64; 3] = [30_001, 7, 9_007_199_254_740_991];
const USERS: [u64; 4] = [1, 2, 1_000_000, 9_007_199_254_740_991];

/// As many as leave most of a history's steps to what comes after they are on sale.
const ACTIVITIES_MANY: usize = 20;

/// So many that most of them call once.
const USERS_MANY: usize = 300;

/// What is no number of any argument, and numbers at the bounds.
const HOSTILE: &[&[u8]] = &[
    b"",
    b"0",
    b"00",
    b"-1",
    b"+1",
    b"1.5",
    b"1.0",
    b"1e3",
    b" 1",
    b"1 ",
    b"1\n",
    b"1\0",
    b"0x10",
    b"nan",
    b"inf",
    b"abc",
    "\u{661}".as_bytes(),
    b"\xff",
    b"2147483647",
    b"2147483648",
    b"4294967296",
    b"9007199254740991",
    b"9007199254740992",
    b"9007199254740993",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999999",
    b"000000000000000000000000000000001",
    b"253402300799999",
    b"253402300800000",
];

/// Ids at the bounds of what is text.
const TEXTS: &[&[u8]] = &[
    b"",
    b"a",
    b"A",
    b"a ",
    b"a\0",
    b"a|b c:d",
    b"held",
    b"count",
    b"\x7f",
    b"\x80",
    b"\xc0\x80",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xed\x9f\xbf",
    b"\xf4\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xe0\x9f\xbf",
    b"\xf0\x8f\xbf\xbf",
    "\u{62a2}\u{8d2d}".as_bytes(),
    "\u{e9}".as_bytes(),
    "e\u{301}".as_bytes(),
    &[b'x'; 64],
    &[b'x'; 65],
];

/// Numbers that follow from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.below(items.len() as u64);
        &items[usize::try_from(index).unwrap()]
    }
}

/// What one history is about.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub activities: usize,
    users: usize,
    /// Different request ids; few make many repeats.
    requests: u64,
    /// In so many calls one argument is hostile.
    hostile_in: u64,
    /// One buyer buys and cancels, again and again.
    churn: bool,
    /// Its order numbers begin with this.
    pub order_prefix: u16,
}

/// One step; `at` is its place in the whole history, which is kept while shrinking.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    at: u64,
    seed: u64,
}

/// The history of a seed.
pub fn make(seed: u64) -> (Shape, Vec<Step>) {
    let mut random = Random(seed);
    let mut shape = Shape {
        activities: *random.pick(&[1, 1, 1, 2, 2, 3, 3, ACTIVITIES_MANY]),
        users: *random.pick(&[1, 1, 2, 2, 4, 4, USERS_MANY]),
        requests: *random.pick(&[4, 12, 1000]),
        hostile_in: *random.pick(&[6, 20, 1000]),
        churn: random.one_in(5),
        order_prefix: *random.pick(&[1, 1, 42, 999]),
    };
    if shape.churn {
        shape = Shape { activities: 1, users: 1, requests: 1000, ..shape };
    }
    let steps = (0..STEPS as u64).map(|at| Step { at, seed: random.draw() }).collect();
    (shape, steps)
}

/// The call of a step, in a history that began at `base_ms` and has made `reservations`, each with
/// its activity.
pub fn call(shape: &Shape, step: Step, base_ms: u64, reservations: &[(Vec<u8>, u64)]) -> Call {
    let mut random = Random(step.seed);
    let random = &mut random;
    let index = random.below(shape.activities as u64);
    let index = usize::try_from(index).unwrap();
    let mut activity = decimal(random, id(&ACTIVITIES, index));
    let opening = 2 * shape.activities as u64;
    let (name, mut arguments) = match random.below(100) {
        // The first steps put the activities on sale.
        _ if step.at < opening => {
            let index = usize::try_from(step.at / 2).unwrap();
            activity = id(&ACTIVITIES, index).to_string().into_bytes();
            match step.at % 2 {
                0 => ("sluice_warm", definition(random, index, base_ms)),
                _ => ("sluice_publish", vec![]),
            }
        }
        6.. if shape.churn => match step.at % 2 {
            0 => ("sluice_reserve", purchase(random, shape)),
            _ => ("sluice_restore", vec![reservation(random, reservations).1]),
        },
        0..2 => ("sluice_warm", definition(random, index, base_ms)),
        2..6 => ("sluice_publish", vec![]),
        6..8 => ("sluice_unpublish", vec![]),
        8..10 => ("sluice_pause", vec![]),
        10..15 => ("sluice_resume", vec![]),
        15..20 => ("sluice_restock", operation(random)),
        20..24 => ("sluice_decrease", operation(random)),
        24..30 => ("sluice_activity", vec![]),
        30..60 => {
            let (of, id) = reservation(random, reservations);
            if !random.one_in(20) {
                activity = of;
            }
            match random.below(6) {
                0 => ("sluice_get", vec![id]),
                1 => ("sluice_confirm", vec![id, random.pick(&[b"p1", b"p2"]).to_vec()]),
                _ => ("sluice_restore", vec![id]),
            }
        }
        _ => ("sluice_reserve", purchase(random, shape)),
    };
    arguments.push(instant(random, step.at, base_ms).to_string().into_bytes());
    if random.one_in(shape.hostile_in) {
        spoil(random, &mut activity, &mut arguments);
    }
    let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
    Call::new(name, &activity, &arguments)
}

/// The id of that index, whose kind begins with `first`.
fn id(first: &[u64], index: usize) -> u64 {
    first.get(index).copied().unwrap_or(40_000 + index as u64)
}

fn definition(random: &mut Random, index: usize, base_ms: u64) -> Vec<Vec<u8>> {
    let (start_ms, end_ms) = WINDOWS_MS[index % WINDOWS_MS.len()];
    let numbers = [
        20_001,
        *random.pick(&[0, 9900, 9900, 4_503_599_627_370_496]),
        *random.pick(&[1, 5, 20, 1000, 2_147_483_647]),
        *random.pick(&[1, 2, 5, 2_147_483_647]),
        base_ms + start_ms,
        base_ms + end_ms,
    ];
    numbers.into_iter().map(|number| decimal(random, number)).collect()
}

fn operation(random: &mut Random) -> Vec<Vec<u8>> {
    let op_id = format!("op-{}", random.below(12)).into_bytes();
    let delta = *random.pick(&[1, 2, 3, 3, 10, 2_147_483_000]);
    vec![op_id, decimal(random, delta)]
}

fn purchase(random: &mut Random, shape: &Shape) -> Vec<Vec<u8>> {
    let user = random.below(shape.users as u64);
    let user = id(&USERS, usize::try_from(user).unwrap());
    let request_id = match random.one_in(12) {
        true => random.pick(TEXTS).to_vec(),
        false => format!("r-{}", random.below(shape.requests)).into_bytes(),
    };
    let quantity = *random.pick(&[1, 1, 1, 1, 1, 2, 2, 3, 6]);
    vec![decimal(random, user), request_id, decimal(random, quantity)]
}

/// Often the last one: what was just bought is what is paid or given back.
fn reservation(random: &mut Random, reservations: &[(Vec<u8>, u64)]) -> (Vec<u8>, Vec<u8>) {
    let (activity, id) = match reservations {
        [] => (b"7".to_vec(), 4_294_967_297),
        [.., last] if random.one_in(2) => last.clone(),
        all => random.pick(all).clone(),
    };
    let id = if random.one_in(30) { id + random.below(3) } else { id };
    (activity, decimal(random, id))
}

/// Sometimes on the edge of a window, else at the clock, which never goes back.
fn instant(random: &mut Random, at: u64, base_ms: u64) -> u64 {
    if random.one_in(8) {
        let (start_ms, end_ms) = *random.pick(&WINDOWS_MS);
        let edges = [start_ms.saturating_sub(1), start_ms, end_ms, end_ms + 1];
        return base_ms + *random.pick(&edges);
    }
    base_ms + BEGIN_MS + at * TICK_MS
}

/// As load generators write numbers, at times.
fn decimal(random: &mut Random, number: u64) -> Vec<u8> {
    match random.one_in(10) {
        true => format!("{number:020}").into_bytes(),
        false => number.to_string().into_bytes(),
    }
}

fn spoil(random: &mut Random, activity: &mut Vec<u8>, arguments: &mut Vec<Vec<u8>>) {
    let index = usize::try_from(random.below(arguments.len() as u64)).unwrap();
    match random.below(10) {
        0 => *activity = random.pick(HOSTILE).to_vec(),
        1 => *activity = b"404".to_vec(),
        // The last is the time: without it the two sides would go by different clocks.
        2 if index + 1 < arguments.len() => drop(arguments.remove(index)),
        2 => {}
        3 => arguments.insert(index, random.pick(HOSTILE).to_vec()),
        4 => arguments[index] = random.pick(TEXTS).to_vec(),
        _ => arguments[index] = random.pick(HOSTILE).to_vec(),
    }
}

/// Takes steps away, many at a time at first, while the rest still fails.
pub fn shrink(mut steps: Vec<Step>, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut chunk = steps.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            if fails(&fewer) {
                steps = fewer;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    steps
}
