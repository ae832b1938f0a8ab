//! What a shop builds without Sluice: an axum service that checks a token and a body, and asks a
//! store. It speaks as much of Sluice's HTTP as the client needs, and nothing of it is slower than
//! it must be: one look at the token, one call or one transaction for the purchase.

mod shop;
mod stores;

use std::net::SocketAddr;

use crate::contenders::Store;
use crate::trouble::Trouble;

/// Arguments of `peers service`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// What the sale is kept in
    #[arg(long, value_enum)]
    store: Store,
    /// Where the store is
    #[arg(long)]
    url: String,
    /// What tokens are signed with
    #[arg(long)]
    secret: String,
}

/// Serves until it is killed.
pub(crate) fn run(args: Args) -> Result<(), Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(Trouble::io("make a runtime"))?.block_on(async {
        let store = stores::Kept::open(args.store, &args.url).await?;
        let router = shop::router(store, args.secret.as_bytes());
        let listener = tokio::net::TcpListener::bind(args.listen).await;
        let listener = listener.map_err(Trouble::io("listen"))?;
        let address = listener.local_addr().map_err(Trouble::io("name the listener"))?;
        println!("listening on http://{address}");
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            // Without it, an answer may wait for the acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.map_err(Trouble::io("serve"))
    })
}
