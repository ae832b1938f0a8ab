//! `sluice bench`: many shoppers rush one activity, and the sale is checked afterwards.
//!
//! [`shared`] and [`options`] say what is wanted, [`plan`] which request comes when, at which
//! [`pace`], [`tokens`] and [`wire`] prepare the bytes, [`drive`] sends them over its connections,
//! [`tally`] counts what comes back, and [`timeline`] when it did. Then the accepted purchases are
//! followed until they are orders, [`lag`] tells how long the stores took, [`verify`] compares them
//! with the server's own figures and [`books`] with its database, [`report`] prints all of it, and
//! [`plot`] draws it.
//!
//! The generator is built to be cheap, because it usually shares its machine with the server it
//! measures: no allocation per request, no hop between threads, tokens signed up front.

mod books;
mod client;
mod drive;
mod header;
mod lag;
mod options;
mod pace;
mod plan;
mod plot;
mod progress;
mod report;
mod resp;
mod sale;
mod shared;
mod tally;
mod timeline;
mod tokens;
mod verify;
mod wire;

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use books::Books;
use client::{Client, ExchangeError};
use drive::Load;
use lag::Watch;
use options::HttpArgs;
use plot::PlotError;
use progress::Display;
use report::Report;
use sale::{Activity, Admin};
use shared::LoadArgs;
use tally::Tally;
use tokens::TokenTable;
use verify::{Check, Depth, Evidence};
use wire::{Http, PurchaseTemplate};

use bridge::sql::database::UrlError;
use bridge::sql::store::StoreError;

use super::token::{Signer, TokenError};
use crate::identity::Role;

/// The sale was not exact.
const EXIT_WRONG_SALE: u8 = 1;

/// How long the tokens live beyond the run: they must outlast the wait for the orders.
const TOKEN_TTL: Duration = Duration::from_secs(24 * 3600);

/// Arguments of `sluice bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    front: Front,
}

/// The front that is loaded.
#[derive(Debug, clap::Subcommand)]
enum Front {
    /// Load the HTTP purchase endpoint
    Http(Box<HttpArgs>),
    /// Load the Redis port, or a Redis or Valkey with the function library
    Resp(Box<resp::RespArgs>),
}

/// Why there is no result. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error("{url} is no address of a server: give --url http://HOST:PORT")]
    Url { url: String },
    #[error("{authority} has no address: {source}")]
    Host { authority: String, source: io::Error },
    #[error(
        "--repeat-share and --second-try-share must each be 0..1 and leave room for first tries"
    )]
    Shares,
    #[error("--rate must be above 0")]
    Rate,
    #[error("--check none sells nothing: name the --activity to rush")]
    NothingToRush,
    #[error("--plot {file}: {source}", file = file.display())]
    Plot { file: PathBuf, source: PlotError },
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("{authority} does not answer: {source}; is the server running?")]
    Unreachable { authority: String, source: ExchangeError },
    #[error("{method} {path} was refused with {status} {code}: {detail}")]
    Refused { method: &'static str, path: String, status: u16, code: String, detail: String },
    #[error("{path} answered something else than Sluice would: {source}")]
    Unexpected { path: String, source: serde_json::Error },
    #[error("{call} was answered with {answer}; is the function library loaded there?")]
    Answered { call: String, answer: String },
    #[error(transparent)]
    DatabaseUrl(#[from] UrlError),
    #[error("database: {0}")]
    Database(#[from] StoreError),
    #[error("{0}")]
    Redis(String),
    #[error("an activity's id is a positive number below 2^53")]
    Activity,
    #[error("the generator could not run: {0}; fewer --connections or --threads may help")]
    Resources(#[from] io::Error),
}

/// Runs `sluice bench`.
pub(crate) fn run(args: Args) -> ExitCode {
    // Each connection of the load is a descriptor.
    crate::serve::raise_limit();
    let outcome = match args.front {
        Front::Http(args) => run_http(&args),
        Front::Resp(args) => resp::run(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_WRONG_SALE),
        Err(error) => {
            eprintln!("sluice bench: {error}");
            ExitCode::from(super::EXIT_USAGE)
        }
    }
}

/// Loads, checks and reports; whether the sale was exact.
fn run_http(args: &HttpArgs) -> Result<bool, BenchError> {
    let (plan, requests) = args.load.plan()?;
    let pace = args.load.pace()?;
    let (authority, address) = args.server()?;
    let signer = Signer::open(args.config.as_deref(), args.data_dir.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let first_user = args.load.first_user;
    let admin_token = signer.sign(first_user, Role::Admin, TOKEN_TTL)?;
    let mut admin = Admin::new(Client::new(address, args.load.timeout), &authority, admin_token);
    let before = runtime.block_on(prepare(&mut admin, args))?;
    let caught_up_by = Instant::now() + args.load.drain_timeout;
    let books = args.load.database.as_deref().map(|url| Books::open(url, &before, caught_up_by));
    let books = books.map(|open| runtime.block_on(open)).transpose()?;

    let tokens = TokenTable::sign(args.load.shoppers, |shopper| {
        signer.sign(first_user + u64::from(shopper), Role::User, TOKEN_TTL)
    })?;
    let template = PurchaseTemplate::new(&authority, before.id, &args.headers, run_number());
    let watch = Watch::begin(before.id, &args.load)?;
    let load = Arc::new(Load {
        protocol: Http { template, tokens },
        plan,
        requests: requests.unwrap_or(u64::MAX),
        duration_max: args.load.duration,
        pace,
        connections: args.load.connections,
        depth: 1,
        threads: args.load.threads(),
        address,
        time_out: args.load.timeout,
        samples: watch.samples(),
    });
    let mut display = Display::new(requests, args.load.quiet);
    let (mut tally, elapsed) = drive::run(&load, |progress| display.show(progress))?;
    watch.ended(&tally.acceptances);
    let mut scene = Scene { args, load, authority, admin, before, books };
    let (checks, drain) = runtime.block_on(scene.check(&mut tally, &display))?;
    let lags = &watch.lags()?;
    display.finish();
    let run = args.describe(before.id, requests);
    publish(&Report { run, tally: &tally, elapsed, drain, lags, checks: &checks }, &args.load)
}

/// What a run over HTTP is checked with.
struct Scene<'a> {
    args: &'a HttpArgs,
    load: Arc<Load<Http>>,
    authority: String,
    admin: Admin,
    before: Activity,
    books: Option<Books>,
}

impl Scene<'_> {
    /// The verdicts on the sale, as many as were asked for, and how long after the last answer the
    /// last order came.
    async fn check(
        &mut self,
        tally: &mut Tally,
        display: &Display,
    ) -> Result<(Vec<Check>, Option<Duration>), BenchError> {
        let Self { load, authority, before, .. } = &*self;
        let before = *before;
        if self.args.load.check == Depth::None {
            return Ok((Vec::new(), None));
        }
        let last_answer = Instant::now();
        let deadline = last_answer + self.args.load.drain_timeout;
        let unknown = std::mem::take(&mut tally.unsettled);
        let (settled, unsettled) = verify::settle(load, &unknown, deadline).await;
        tally.acceptances.extend(settled);
        let acceptances = &tally.acceptances;
        if self.args.load.check == Depth::Figures {
            let after = self.admin.activity(before.id).await?;
            let purchases = &BTreeMap::new();
            let evidence = Evidence { before, after, acceptances, unsettled, purchases };
            return Ok((verify::judge_figures(&evidence), None));
        }
        verify::drained(load, acceptances, authority, deadline).await;
        let drain = last_answer.elapsed();
        let watch = |missing| display.show_drain(missing);
        let purchases = &verify::follow(load, acceptances, authority, deadline, watch).await;
        let after = self.admin.activity(before.id).await?;
        let evidence = Evidence { before, after, acceptances, unsettled, purchases };
        let mut checks = verify::judge(&evidence);
        if let Some(books) = &self.books {
            let accepted: HashSet<_> = acceptances.iter().map(|one| one.reservation).collect();
            let counts = (accepted.len() as u64, unsettled as u64);
            checks.extend(books.judge(&after, counts, deadline).await?);
        }
        Ok((checks, Some(drain)))
    }
}

/// The activity to rush: the one named, or a new one.
async fn prepare(admin: &mut Admin, args: &HttpArgs) -> Result<Activity, BenchError> {
    match args.load.activity {
        Some(id) if args.load.check == Depth::None => Ok(Activity::unknown(id)),
        Some(id) => admin.activity(id).await,
        None => admin.open_sale(args.sku, args.load.stock().into(), args.load.limit).await,
    }
}

/// Prints the report, and draws it where that is wanted; whether the sale was exact.
fn publish(report: &Report<'_>, args: &LoadArgs) -> Result<bool, BenchError> {
    let text = if args.json { format!("{}\n", report.to_json()) } else { report.to_string() };
    // A reader that went away has seen what it wanted; the exit code still tells.
    let _ = io::stdout().write_all(text.as_bytes());
    if let Some(file) = &args.plot {
        plot::draw(&report.tally.timeline, &report.run, file)
            .map_err(|source| BenchError::Plot { file: file.clone(), source })?;
    }
    Ok(report.is_exact())
}

/// A number that sets this run's request ids apart from those of every run before. It does not
/// come from the seed: a second run with the same seed would replay the first.
fn run_number() -> u32 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mixed = plan::mix(plan::mix(since_1970.as_secs()) ^ u64::from(since_1970.subsec_nanos()));
    (mixed >> 32) as u32 ^ std::process::id()
}
