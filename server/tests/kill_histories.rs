//! H11 and H15: the built server is killed with SIGKILL again and again while eight clients, over
//! HTTP and over the Redis port by turns, buy, cancel, pay and look; what they were told, in the
//! order of real time, must be what one shop serving one customer at a time could have told them.
//!
//! An operation without an answer is asked again under the same id, and counts as one that lasted
//! all the while. `SLUICE_TEST_KILLS` sets the number of kills, `SLUICE_TEST_SEED` repeats a run's
//! placement.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/front.rs"]
mod front;
#[path = "common/linear.rs"]
mod linear;
#[path = "common/provider.rs"]
mod provider;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use books::Checked;
use common::{Server, sluice};
use front::{Front, Port, Purchase};
use linear::{History, Operation, Terms, Timed};
use shop::{Random, scratch};

/// Kills of a run in CI.
const KILLS: usize = 200;

/// Kills while one activity is on sale: its history goes across them.
const KILLS_OF_ACTIVITY: usize = 2;

const CLIENTS: usize = 8;

/// Operations of one history, at least.
const OPERATIONS_MIN: usize = 2_000;

/// So few that the last unit goes and comes back all the time, and so many users that few of them
/// have reserved and given back as often as anybody may.
const TERMS: Terms = Terms { units: 6, limit: 2 };
const USERS: usize = 60;

/// One in so many operations pays: fewer than [`TERMS`] has units over most of a history.
const PAYS_EVERY: usize = OPERATIONS_MIN / 4;

/// The longest a start is let run before it is killed, in microseconds: a little longer than a
/// start takes, so that every step of it is hit now and then.
const START_US_MAX: usize = 60_000;

/// A reservation that some client was told of.
#[derive(Clone)]
struct Known {
    id: u64,
    order_no: String,
    user: u64,
}

impl Known {
    /// Which one of its activity it is.
    fn position(&self) -> u32 {
        u32::try_from(self.id & u64::from(u32::MAX)).unwrap()
    }
}

/// One activity, from its first customer to its last.
struct Sale {
    activity: u64,
    seed: u64,
    known: Mutex<Vec<Known>>,
    done: AtomicUsize,
    is_over: AtomicBool,
}

impl Sale {
    fn client(&self, front: &Front, client: usize) -> Vec<Timed> {
        let mut random = Random::new(self.seed ^ ((client as u64) << 32) ^ self.activity);
        let mut history = Vec::new();
        while !self.is_over.load(Ordering::Acquire) {
            let began = Instant::now();
            let operation = self.operation(front, &mut random, (client, history.len()));
            history.push(Timed { operation, began, ended: Instant::now() });
            self.done.fetch_add(1, Ordering::Release);
        }
        history
    }

    fn operation(
        &self,
        front: &Front,
        random: &mut Random,
        (client, index): (usize, usize),
    ) -> Operation {
        let known = {
            let known = self.known.lock().unwrap();
            // Mostly one of the last: others are at it, too.
            let recent = known.len().min(CLIENTS);
            (recent > 0).then(|| known[known.len() - 1 - random.below(recent)].clone())
        };
        let port = if random.below(2) == 0 { Port::Http } else { Port::Resp };
        if let Some(known) = &known
            && random.below(PAYS_EVERY) == 0
        {
            return self.pay(front, known);
        }
        match (random.below(8), known) {
            (0 | 1, Some(known)) => self.cancel(front, port, &known),
            (2, Some(known)) => look(front, &known),
            _ => {
                let user = 1 + random.below(USERS) as u64;
                self.buy(front, port, user, &format!("{client}-{index}"))
            }
        }
    }

    fn buy(&self, front: &Front, port: Port, user: u64, request_id: &str) -> Operation {
        let told = match port {
            Port::Http => front.buy(self.activity, user, request_id),
            Port::Resp => front.buy_over_resp(self.activity, user, request_id),
        };
        match told {
            Purchase::Accepted { id, order_no } => {
                let known = Known { id, order_no, user };
                let position = known.position();
                self.known.lock().unwrap().push(known);
                Operation::Bought { user, position }
            }
            Purchase::Refused { code } => match code.as_str() {
                "sold_out" => Operation::SoldOut { user },
                "limit_reached" => Operation::LimitReached { user },
                _ => panic!("{code}"),
            },
        }
    }

    fn cancel(&self, front: &Front, port: Port, known: &Known) -> Operation {
        let position = known.position();
        if port == Port::Resp {
            return match front.restore(self.activity, known.id) {
                1 | 2 => Operation::Cancelled { position },
                3 => Operation::AlreadyPaid { position },
                code => panic!("{code}"),
            };
        }
        let answer = front.cancel(&known.order_no, known.user);
        match (answer.status, answer.body["code"].as_str()) {
            (200, _) => Operation::Cancelled { position },
            (409, Some("already_paid")) => Operation::AlreadyPaid { position },
            _ => panic!("{answer:?}"),
        }
    }

    fn pay(&self, front: &Front, known: &Known) -> Operation {
        let position = known.position();
        match front.pay(self.activity, known.id) {
            1 | 2 => Operation::Paid { position },
            -1 => Operation::PaidTooLate { position },
            code => panic!("{code}"),
        }
    }
}

fn look(front: &Front, known: &Known) -> Operation {
    let position = known.position();
    match front.look(known.id, known.user, "0s")["status"].as_str().unwrap() {
        "rolled_back" => Operation::SeenGivenBack { position },
        _ => Operation::SeenHeld { position },
    }
}

const ARGUMENTS: [&str; 2] = ["--resp-listen", "127.0.0.1:0"];

fn start(data_dir: &Path) -> Server {
    Server::start_in(data_dir, &ARGUMENTS, &[])
}

/// A start that does not get far.
fn start_and_kill(data_dir: &Path, after: Duration) {
    let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(data_dir).args(ARGUMENTS).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_server_that_is_killed_again_and_again_answers_as_one_that_never_was() {
    let seed = shop::seed();
    let kills = std::env::var("SLUICE_TEST_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let mut random = Random::new(seed);
    let scratch = scratch();
    let data_dir = scratch.path().join("data");
    let mut server = start(&data_dir);
    let front = Front::of(&server);
    let (mut operations, mut histories, mut in_start) = (0, 0, 0);
    for first in (0..kills).step_by(KILLS_OF_ACTIVITY) {
        let fields = json!({"stock": TERMS.units, "per_user_limit": TERMS.limit});
        let sale = Sale {
            activity: server.activity(&fields),
            seed,
            known: Mutex::default(),
            done: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        let (front, sale) = (&front, &sale);
        let (history, next): (History, _) = std::thread::scope(|threads| {
            let mut server = server;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| threads.spawn(move || sale.client(front, client)))
                .collect();
            let wait_for = |operations| {
                while sale.done.load(Ordering::Acquire) < operations
                    && !clients.iter().any(|client| client.is_finished())
                {
                    std::thread::sleep(Duration::from_micros(200));
                }
            };
            for kill in 0..KILLS_OF_ACTIVITY.min(kills - first) {
                let part = OPERATIONS_MIN / KILLS_OF_ACTIVITY;
                wait_for(kill * part + 1 + random.below(part));
                // Dropping it is a SIGKILL.
                drop(server);
                if random.below(4) == 0 {
                    let after = Duration::from_micros(random.below(START_US_MAX) as u64);
                    start_and_kill(&data_dir, after);
                    in_start += 1;
                }
                server = start(&data_dir);
                front.moved_to(&server);
            }
            wait_for(OPERATIONS_MIN);
            sale.is_over.store(true, Ordering::Release);
            (clients.into_iter().map(|client| client.join().unwrap()).collect(), server)
        });
        server = next;
        let length = history.iter().map(Vec::len).sum::<usize>();
        assert!(length >= OPERATIONS_MIN, "only {length} operations");
        operations += length;
        histories += 1;
        linear::check(&history, TERMS).unwrap_or_else(|why| panic!("{why}"));
        assert_books(&data_dir, sale.activity, &history);
    }
    println!(
        "{kills} kills, {in_start} more during a start; {histories} histories, {operations} \
         operations"
    );
    let counts = [("kills", kills), ("more during a start", in_start), ("histories", histories)];
    common::counts::note("kill_histories", &counts.map(|(what, count)| (what, count as u64)));
    common::counts::note("kill_histories", &[("operations", operations as u64)]);
    assert!(server.stop().success());
}

/// What `sluice check` finds in the log alone is what the clients were told.
fn assert_books(data_dir: &Path, activity: u64, history: &History) {
    let (mut reservations, mut back, mut paid) = (0, BTreeSet::new(), BTreeSet::new());
    for timed in history.iter().flatten() {
        match timed.operation {
            Operation::Bought { .. } => reservations += 1,
            Operation::Cancelled { position } => _ = back.insert(position),
            Operation::Paid { position } => _ = paid.insert(position),
            _ => {}
        }
    }
    let (total, sold, rolled_back) = (u64::from(TERMS.units), paid.len() as u64, back.len() as u64);
    let locked = reservations - sold - rolled_back;
    let available = total - locked - sold;
    let expected = Checked { total, available, locked, sold, rolled_back, reservations };
    books::assert_comes_to(data_dir, activity, expected);
}
