//! What runs beside requests: limits that follow time, figures for browsers, refunds,
//! archiving, a look at the disk.

use std::sync::Arc;

use engine::Engine;
use tokio::task::JoinError;

use crate::app::{App, Shared};
use crate::disk_watch::DiskWatch;
use crate::http;
use crate::payments::Refunder;

/// Starts what runs beside requests until the server stops.
pub(crate) fn start(shared: &Shared, app: &App) {
    let (gate, engine, stop) = (Arc::clone(&shared.gate), app.engine.clone(), shared.stop.clone());
    tokio::spawn(async move { stop.run_until_cancelled(gate.keep(&engine)).await });
    let (events, engine) = (Arc::clone(&shared.events), app.engine.clone());
    let stop = shared.stop.clone();
    tokio::spawn(async move {
        stop.run_until_cancelled(events.keep(&engine, http::render_event)).await
    });
    let watch = DiskWatch::default().keep(app.engine.clone());
    let stop = shared.stop.clone();
    tokio::spawn(async move { stop.run_until_cancelled(watch).await });
    let refunder = Refunder::new(&app.engine, &app.payments, Arc::clone(&app.orders.accounts));
    tokio::spawn(refunder.run(shared.stop.clone()));
}

/// Activities whose life is over leave memory from now on: SQL answers for them.
///
/// # Errors
/// The look at them died.
pub(crate) async fn archive(engine: &Engine) -> Result<(), JoinError> {
    engine.archive_when_over();
    let engine = engine.clone();
    // Those that are over by now need not wait for the timer.
    if let Err(busy) = tokio::task::spawn_blocking(move || engine.archive_ended()).await? {
        tracing::debug!("activities that are over stay in memory for now: {busy:?}");
    }
    Ok(())
}
