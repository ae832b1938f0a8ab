//! A server with a MariaDB and a Valkey of its own, each of which can die, and shoppers who know
//! nothing of that: what has no answer is asked again.
#![allow(dead_code, reason = "each test binary uses its own part of the market")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection, Row as _};
use tempfile::TempDir;

use crate::books::{self, Checked};
use crate::common::Server;
use crate::front::{Front, PATIENCE, Purchase, WAIT};
use crate::line::Line;
use crate::mariadb::MariaDb;
use crate::provider;
use crate::shop::{Random, scratch};
use crate::stores::{Account, Bought, Fate, Figures};
use crate::valkey::Valkey;

/// Shoppers at once.
const THREADS: usize = 8;

/// A user of MariaDB who is bound by `read_only`, as a server's should be.
const SQL_USER: &str = "sluice";

/// The three processes.
pub(crate) struct Market {
    pub(crate) database: MariaDb,
    pub(crate) line: Line,
    valkey: Mutex<Valkey>,
    server: Mutex<Option<Server>>,
    front: OnceLock<Front>,
    data_dir: TempDir,
    /// What buyers were told since the beginning.
    pub(crate) account: Mutex<Account>,
}

/// A sale: what is on offer, and who comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sale {
    pub(crate) units: u64,
    pub(crate) shoppers: u64,
    /// With a second to pay, instead of an hour.
    pub(crate) times_out: bool,
    /// A shopper whose order SQL will refuse, and who leaves it at that.
    pub(crate) poisoned: Option<u64>,
    /// What shoppers do with what they got.
    pub(crate) seed: u64,
}

impl Market {
    /// All three, running.
    pub(crate) fn open() -> Self {
        let database = MariaDb::start();
        let line = Line::to(&database.socket());
        let valkey = Mutex::new(Valkey::start_with(&["--port", "0", "--appendonly", "yes"]));
        let market = Self {
            database,
            line,
            valkey,
            server: Mutex::new(None),
            front: OnceLock::new(),
            data_dir: scratch(),
            account: Mutex::default(),
        };
        market.sql("CREATE DATABASE shop");
        market.sql("CREATE USER sluice");
        market.sql("GRANT ALL ON shop.* TO sluice");
        market.start_server();
        market
    }

    /// One statement by the database's own administrator.
    pub(crate) fn sql(&self, sql: &str) {
        statement(&self.database, sql);
    }

    /// Ends every connection that the server has to its database.
    pub(crate) fn cut_connections(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = self.database.url("mysql");
            let mut connection = MySqlConnection::connect(&url).await.unwrap();
            for row in connection.fetch_all("SHOW PROCESSLIST").await.unwrap() {
                // The types are MariaDB's or MySQL's own.
                let user: String = row.try_get_unchecked("User").unwrap();
                let id: u64 = row.try_get_unchecked("Id").unwrap();
                if user == SQL_USER {
                    // One that has ended meanwhile is as good.
                    let _ = connection.execute(AssertSqlSafe(format!("KILL {id}"))).await;
                }
            }
        });
    }

    /// One command to Redis.
    pub(crate) fn redis(&self, line: &str) {
        let mut redis = self.valkey.lock().unwrap().connect(0);
        let () = crate::valkey::say(&mut redis, line);
    }

    pub(crate) fn kill_server(&self) {
        // Dropping it is a SIGKILL.
        drop(self.server.lock().unwrap().take());
    }

    pub(crate) fn start_server(&self) {
        let sql = self.line.url(SQL_USER, "shop");
        let redis = self.redis_url();
        let args = ["--database", &sql, "--redis", &redis, "--resp-listen", "127.0.0.1:0"];
        let secrets = provider::secrets();
        let env = [("SLUICE_PAYMENTS__SECRETS", secrets.as_str())];
        let server = Server::start_in(&self.data_dir(), &args, &env);
        self.front.get_or_init(|| Front::of(&server)).moved_to(&server);
        *self.server.lock().unwrap() = Some(server);
    }

    pub(crate) fn kill_redis(&self) {
        self.valkey.lock().unwrap().kill();
    }

    pub(crate) fn start_redis(&self) {
        self.valkey.lock().unwrap().resume();
    }

    /// The URL of its Redis.
    pub(crate) fn redis_url(&self) -> String {
        self.valkey.lock().unwrap().url(0)
    }

    fn front(&self) -> &Front {
        self.front.get().expect("the server was started")
    }

    fn data_dir(&self) -> PathBuf {
        self.data_dir.path().join("data")
    }

    /// Makes a sale and returns its activity.
    pub(crate) fn open_sale(&self, sale: &Sale) -> u64 {
        let ttl = if sale.times_out { "1s" } else { "1h" };
        let body = json!({"stock": sale.units, "payment_ttl": ttl});
        let activity = self.server.lock().unwrap().as_ref().unwrap().activity(&body);
        self.account.lock().unwrap().activities.insert(activity, sale.units);
        activity
    }

    /// Lets shoppers come while `meanwhile` does what it likes with the three; it is given the
    /// number of answers so far. Returns how many units were got.
    pub(crate) fn shop(
        &self,
        activity: u64,
        sale: &Sale,
        meanwhile: impl FnOnce(&Progress),
    ) -> usize {
        let progress = Progress { answered: AtomicUsize::new(0), over: AtomicUsize::new(0) };
        let next = AtomicUsize::new(0);
        let mut got = std::thread::scope(|threads| {
            let shoppers: Vec<_> = (0..THREADS)
                .map(|_| threads.spawn(|| self.shoppers(activity, sale, &next, &progress)))
                .collect();
            meanwhile(&progress);
            shoppers.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let count = got.len();
        self.account.lock().unwrap().bought.append(&mut got);
        count
    }

    /// One thread's shoppers, one after another.
    fn shoppers(
        &self,
        activity: u64,
        sale: &Sale,
        next: &AtomicUsize,
        progress: &Progress,
    ) -> Vec<Bought> {
        let mut got = Vec::new();
        loop {
            let user = 1 + next.fetch_add(1, Ordering::Relaxed) as u64;
            if user > sale.shoppers {
                progress.over.fetch_add(1, Ordering::Release);
                return got;
            }
            let mut random = Random::new(sale.seed ^ (activity << 32) ^ user);
            if let Some(bought) = self.buy(activity, user, "first") {
                // Again, as impatient buyers do: nothing new.
                let again = self.buy(activity, user, "first").expect("what was accepted stays so");
                assert_eq!((again.id, &again.order_no), (bought.id, &bought.order_no));
                let fate = match random.below(4) {
                    _ if sale.poisoned == Some(user) => Fate::Unpaid,
                    0 | 1 => Fate::Unpaid,
                    // A late callback may bring a timed-out one back: told apart elsewhere.
                    2 if !sale.times_out && user.is_multiple_of(2) => {
                        self.front().pay_by_callback(&bought.order_no, user);
                        Fate::Paid
                    }
                    2 => self.pay(&bought),
                    _ => self.cancel(&bought),
                };
                got.push(Bought { fate, ..bought });
            }
            progress.answered.fetch_add(1, Ordering::Release);
        }
    }

    /// Lets `user` buy a unit, and leaves it at that.
    pub(crate) fn sell_to(&self, user: u64, activity: u64) {
        let bought = self.buy(activity, user, "alone").expect("there are units");
        self.account.lock().unwrap().bought.push(bought);
    }

    fn buy(&self, activity: u64, user: u64, request_id: &str) -> Option<Bought> {
        match self.front().buy(activity, user, request_id) {
            Purchase::Accepted { id, order_no } => {
                Some(Bought { id, order_no, user, activity, fate: Fate::Unpaid })
            }
            Purchase::Refused { code } => {
                assert_eq!(code, "sold_out");
                None
            }
        }
    }

    fn pay(&self, bought: &Bought) -> Fate {
        match self.front().pay(bought.activity, bought.id) {
            1 | 2 => Fate::Paid,
            -1 => Fate::TimedOut,
            code => panic!("{bought:?}: {code}"),
        }
    }

    fn cancel(&self, bought: &Bought) -> Fate {
        let answer = self.front().cancel(&bought.order_no, bought.user);
        assert_eq!(answer.status, 200, "{answer:?}");
        fate_in(&answer.body).unwrap_or_else(|| panic!("{answer:?}"))
    }

    /// Waits until nothing of `activity` is under way any more: what nobody pays has timed out, a
    /// poisoned row is a dead letter, everything else is an order.
    pub(crate) fn settle(&self, activity: u64, sale: &Sale) {
        let mut account = self.account.lock().unwrap();
        for bought in account.bought.iter_mut().filter(|it| it.activity == activity) {
            if bought.fate == Fate::Unpaid {
                bought.fate = match sale {
                    Sale { poisoned, .. } if *poisoned == Some(bought.user) => Fate::DeadLetter,
                    Sale { times_out: true, .. } => Fate::TimedOut,
                    _ => Fate::Unpaid,
                };
            }
            self.wait_for(bought);
        }
    }

    /// Waits until `bought` shows its fate.
    fn wait_for(&self, bought: &Bought) {
        let (status, reason) = match bought.fate {
            Fate::Unpaid | Fate::Paid => ("ordered", None),
            Fate::Cancelled => ("rolled_back", Some("cancelled")),
            Fate::TimedOut => ("rolled_back", Some("timeout")),
            Fate::DeadLetter => ("rolled_back", Some("dead_letter")),
        };
        let began = Instant::now();
        loop {
            let body = self.front().look(bought.id, bought.user, "1s");
            if body["status"] == status {
                assert_eq!(body["reason"].as_str(), reason, "{bought:?}: {body}");
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{bought:?}: {body}");
            std::thread::sleep(WAIT);
        }
    }

    /// Lets everything settle; then SQL, Redis, the engine and its log must say the same as the
    /// buyers were told.
    pub(crate) fn assert_agreed(&self, activity: u64, sale: &Sale, what: &str) {
        self.settle(activity, sale);
        let account = self.account.lock().unwrap();
        let missing = account.told_but_missing(&self.database.url("shop"), activity);
        assert!(missing.is_empty(), "{what}: told to be orders: {missing:?}");
        let figures = account.figures(activity);
        self.until_same(what, || account.compare_sql(&self.database.url("shop")));
        self.until_same(what, || account.compare_redis(&self.redis_url()));
        let server = self.server.lock().unwrap();
        let seen = server.as_ref().unwrap().figures(activity);
        let Figures { total, available, locked, sold, reservations, rolled_back } = figures;
        assert_eq!(seen, [total, available, locked, sold], "{what}");
        let expected = Checked { total, available, locked, sold, rolled_back, reservations };
        assert_eq!(books::check(&self.data_dir(), activity), expected, "{what}");
    }

    fn until_same(&self, what: &str, compare: impl Fn() -> Result<(), String>) {
        let began = Instant::now();
        while let Err(difference) = compare() {
            assert!(began.elapsed() < PATIENCE, "{what}: {difference}");
            std::thread::sleep(WAIT);
        }
    }

    /// Ends the server in order.
    pub(crate) fn close(&self) {
        assert!(self.server.lock().unwrap().take().unwrap().stop().success());
    }
}

/// One statement by the administrator of `database`.
pub(crate) fn statement(database: &MariaDb, sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = MySqlConnection::connect(&database.url("mysql")).await.unwrap();
        connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    });
}

fn fate_in(body: &Value) -> Option<Fate> {
    match body["reason"].as_str()? {
        "cancelled" => Some(Fate::Cancelled),
        "timeout" => Some(Fate::TimedOut),
        _ => None,
    }
}

/// How far the shoppers are.
pub(crate) struct Progress {
    answered: AtomicUsize,
    over: AtomicUsize,
}

impl Progress {
    /// Waits until so many shoppers are done, or all.
    pub(crate) fn wait(&self, answered: usize) {
        while self.answered.load(Ordering::Acquire) < answered
            && self.over.load(Ordering::Acquire) < THREADS
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Shoppers that are done.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Acquire)
    }
}
