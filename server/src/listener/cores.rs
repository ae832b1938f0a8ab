//! A loop of its own for each core but one: a runtime on one thread, over a socket that it shares
//! with the others, which commits what it decided when it comes to rest.
//!
//! ```text
//! run        every task that is ready: requests are read and decided, and wait for the log
//! rest       none is ready: what was decided is committed, on this thread, with one write
//! run        those who waited are answered; more has come meanwhile
//! ```
//!
//! Wake-ups across cores cost more than the disk: a purchase needs none. Anything else than
//! purchases (SQL, hashes of passwords, a time-out) runs on the same loop without knowing of it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};
use wal::AbortOnPanic;

use super::sockets::bind_shared;
use super::{House, Listener, loop_count, settle, turn};
use crate::app::Shared;

/// Idle this long after a commit, a loop lets a later frame vouch for its last one, as the log's
/// own thread does.
const SEAL_AFTER: Duration = Duration::from_millis(wal::limits::IDLE_SEAL_MS);

/// The running loops. They end when this is dropped; what they serve ends before, at the house's
/// word.
pub(crate) struct Cores {
    /// Where they listen.
    pub(crate) address: SocketAddr,
    /// Connections that each cut off, once it accepts nobody any more.
    served: Vec<oneshot::Receiver<usize>>,
    /// Each loop lives until its own is dropped: others may still wait for its sockets.
    lives: Vec<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Cores {
    /// Listens on `address`, with as many loops as `shared` has bounds for.
    ///
    /// # Errors
    /// The address is taken, or the operating system refuses sockets or threads.
    pub(crate) fn start(
        address: SocketAddr,
        house: &House,
        shared: &Arc<Shared>,
    ) -> io::Result<Self> {
        let wanted = shared.http().loops;
        let (address, sockets) = bind_shared(address, loop_count(wanted))?;
        let mut cores = Self { address, served: vec![], lives: vec![], threads: vec![] };
        for (number, socket) in sockets.into_iter().enumerate() {
            let (house, committed) = (house.clone(), Arc::new(Notify::new()));
            let runtime = runtime(shared, &committed)?;
            let (tell_served, served) = oneshot::channel();
            let (life, end_of_life) = oneshot::channel();
            let sealing = seal(Arc::clone(shared), committed);
            let builder = std::thread::Builder::new().name(format!("http-{number}"));
            let body = move || {
                // A loop that is gone would leave its connections without an answer for ever.
                let _guard = AbortOnPanic;
                settle(wanted, number);
                turn::begin();
                runtime.block_on(serve(socket, house, sealing, tell_served, end_of_life));
                // What blocks for long, the asking of a name or a comparison, is not waited for.
                runtime.shutdown_background();
            };
            cores.threads.push(builder.spawn(body)?);
            cores.served.push(served);
            cores.lives.push(life);
        }
        Ok(cores)
    }

    /// Waits until the loops have served everybody after the house was told to stop. Returns the
    /// number of connections that were cut off.
    pub(crate) async fn served(&mut self) -> usize {
        let mut cut_off = 0;
        for served in self.served.drain(..) {
            // A loop that panics aborts the process.
            cut_off += served.await.unwrap_or(0);
        }
        cut_off
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.lives.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A runtime that ends its turn when it comes to rest.
fn runtime(shared: &Arc<Shared>, committed: &Arc<Notify>) -> io::Result<Runtime> {
    let (shared, committed) = (Arc::clone(shared), Arc::clone(committed));
    let rest = move || {
        if turn::end(shared.app().ok()) {
            committed.notify_one();
        }
    };
    Builder::new_current_thread()
        .enable_all()
        .on_thread_park(rest)
        // What blocks for long, the hash of a password, must not share the loop's core.
        .on_thread_start(wal::stay_nowhere)
        .build()
}

async fn serve(
    socket: TcpListener,
    house: House,
    sealing: impl Future<Output = ()>,
    tell_served: oneshot::Sender<usize>,
    end_of_life: oneshot::Receiver<()>,
) {
    let serving = async {
        let cut_off = match tokio::net::TcpListener::from_std(socket) {
            Ok(socket) => Listener::new(socket, house).run().await,
            Err(error) => {
                tracing::error!("a loop can't serve its socket: {error}");
                0
            }
        };
        // Who waits for it may be gone, with the whole start.
        let _ = tell_served.send(cut_off);
        std::future::pending().await
    };
    tokio::select! {
        () = serving => {}
        () = sealing => {}
        _ = end_of_life => {}
    }
}

/// Seals the log whenever this loop has committed and then been idle for a while.
async fn seal(shared: Arc<Shared>, committed: Arc<Notify>) {
    loop {
        committed.notified().await;
        while tokio::time::timeout(SEAL_AFTER, committed.notified()).await.is_ok() {}
        if let Ok(app) = shared.app() {
            // A log that has failed ends the process by itself.
            let _ = app.committing.seal_idle();
        }
    }
}
