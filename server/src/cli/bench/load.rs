//! Driving the load: worker threads, each with a runtime of its own and a share of the
//! connections, so that no request hops between cores on its way.
//!
//! Closed loop: each connection sends its next request when the last one is answered. Open loop:
//! request `i` is due at `start + i / rate`, whoever sends it; its latency counts from there, so
//! that a server that stalls is charged for everyone who would have come meanwhile.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;

use super::client::{Client, ExchangeError};
use super::lag::Samples;
use super::pace::Alarm;
use super::plan::Plan;
use super::tally::Tally;
use super::tokens::TokenTable;
use super::wire::PurchaseTemplate;

/// How often the progress is looked at.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Wait after a connection was refused: a server that restarts is not helped by a busy loop.
const RECONNECT_WAIT: Duration = Duration::from_millis(20);

/// Bytes of a composed purchase, with room for a token of usual length.
const REQUEST_BYTES: usize = 1024;

/// One run.
pub(super) struct Load {
    /// What is sent.
    pub(super) plan: Plan,
    /// How many requests at most.
    pub(super) requests: u64,
    /// How long at most.
    pub(super) duration_max: Option<Duration>,
    /// Requests a second; `None` for a closed loop.
    pub(super) rate: Option<f64>,
    /// Connections over all threads.
    pub(super) connections: usize,
    /// Worker threads.
    pub(super) threads: usize,
    /// The server.
    pub(super) address: SocketAddr,
    /// The longest wait for an answer.
    pub(super) time_out: Duration,
    /// Whoever follows purchases into the stores.
    pub(super) samples: Arc<Samples>,
    /// The purchase's bytes.
    pub(super) template: PurchaseTemplate,
    /// The shoppers' tokens.
    pub(super) tokens: TokenTable,
}

/// The run's shared counters.
#[derive(Default)]
struct Counters {
    next: AtomicU64,
    answered: AtomicU64,
    accepted: AtomicU64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Requests that have an outcome.
    pub(super) answered: u64,
    /// New reservations among them.
    pub(super) accepted: u64,
}

/// Runs `load` to its end, telling `watch` now and then how far it is. Returns what came back
/// and the time from the first request to the last answer.
///
/// # Errors
/// Where a runtime can't be made: threads or file descriptors are exhausted.
pub(super) fn run(
    load: &Arc<Load>,
    mut watch: impl FnMut(Progress),
) -> io::Result<(Tally, Duration)> {
    let counters = Arc::new(Counters::default());
    let ready = Arc::new(Barrier::new(load.threads));
    let start = Arc::new(OnceLock::new());
    let workers: Vec<_> = (0..load.threads)
        .map(|index| {
            let share = load.connections / load.threads
                + usize::from(index < load.connections % load.threads);
            let (load, counters) = (Arc::clone(load), Arc::clone(&counters));
            let (ready, start) = (Arc::clone(&ready), Arc::clone(&start));
            thread::spawn(move || work(&load, &counters, share, &ready, &start))
        })
        .collect();
    while !workers.iter().all(thread::JoinHandle::is_finished) {
        thread::sleep(PROGRESS_INTERVAL);
        watch(Progress {
            answered: counters.answered.load(Ordering::Relaxed),
            accepted: counters.accepted.load(Ordering::Relaxed),
        });
    }
    let mut total = Tally::new();
    let mut last_answer = None;
    for worker in workers {
        let (tally, end) = worker.join().map_err(|_| io::Error::other("a worker panicked"))??;
        total.merge(tally);
        last_answer = last_answer.max(Some(end));
    }
    let elapsed = match (start.get(), last_answer) {
        (Some(start), Some(end)) => end.saturating_duration_since(*start),
        _ => Duration::ZERO,
    };
    Ok((total, elapsed))
}

/// One worker thread: connects its share first, waits for the others, then shops.
fn work(
    load: &Arc<Load>,
    counters: &Arc<Counters>,
    connections: usize,
    ready: &Barrier,
    start: &OnceLock<Instant>,
) -> io::Result<(Tally, Instant)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let mut clients: Vec<_> =
        (0..connections).map(|_| Client::new(load.address, load.time_out)).collect();
    if let Ok(runtime) = &runtime {
        runtime.block_on(async {
            for client in &mut clients {
                // A failure shows again, and is counted, with the connection's first request.
                if client.connect().await.is_err() {
                    break;
                }
            }
        });
    }
    // Reached on failure too: the others would wait for ever.
    ready.wait();
    let runtime = runtime?;
    let start = *start.get_or_init(Instant::now);
    let tally = Rc::new(RefCell::new(Tally::new()));
    let shoppers = LocalSet::new();
    for client in clients {
        let shopper =
            shop(Arc::clone(load), Arc::clone(counters), client, start, Rc::clone(&tally));
        shoppers.spawn_local(async move {
            if let Err(error) = shopper.await {
                eprintln!("sluice bench: a connection gave up: {error}");
            }
        });
    }
    runtime.block_on(shoppers);
    let end = Instant::now();
    Ok((tally.replace(Tally::new()), end))
}

/// One connection's life.
async fn shop(
    load: Arc<Load>,
    counters: Arc<Counters>,
    mut client: Client,
    start: Instant,
    tally: Rc<RefCell<Tally>>,
) -> io::Result<()> {
    let alarm = load.rate.map(|_| Alarm::new()).transpose()?;
    let mut bytes = Vec::with_capacity(REQUEST_BYTES);
    loop {
        let index = counters.next.fetch_add(1, Ordering::Relaxed);
        if index >= load.requests {
            return Ok(());
        }
        let due = due_at(&load, start, index);
        if load.duration_max.is_some_and(|max| due.saturating_duration_since(start) >= max) {
            return Ok(());
        }
        if let Some(alarm) = &alarm {
            alarm.wait_until(due).await?;
        }
        let request = load.plan.request(index);
        let token = load.tokens.get(request.shopper);
        load.template.compose(token, request.shopper, request.attempt, &mut bytes);
        let outcome = client.exchange(&bytes).await;
        let is_refused_connection = matches!(outcome, Err(ExchangeError::Connect(_)));
        let is_new = tally.borrow_mut().record(request, due.elapsed(), outcome);
        if is_new && let Some(made) = tally.borrow().acceptances.last() {
            load.samples.offer(made.reservation);
        }
        counters.answered.fetch_add(1, Ordering::Relaxed);
        counters.accepted.fetch_add(is_new.into(), Ordering::Relaxed);
        if is_refused_connection {
            tokio::time::sleep(RECONNECT_WAIT).await;
        }
    }
}

/// When the request at `index` is to be sent: now in a closed loop.
fn due_at(load: &Load, start: Instant, index: u64) -> Instant {
    let Some(rate) = load.rate else { return Instant::now() };
    #[expect(clippy::cast_precision_loss, reason = "2^53 requests are never reached")]
    let offset = Duration::try_from_secs_f64(index as f64 / rate);
    // A rate so low that the instant can't be told lies beyond any run's end.
    offset.ok().and_then(|offset| start.checked_add(offset)).unwrap_or(start)
}
