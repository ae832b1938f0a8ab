//! The sale under load, through the server's own admin API: made where none was named, opened,
//! and its figures read before and after.

use serde::Deserialize;
use serde_json::{Value, json};

use super::BenchError;
use super::client::Client;
use super::wire;

/// The window of an activity that the generator makes: it began long ago and outlasts any run.
const START_AT: &str = "2020-01-01T00:00:00.000Z";
/// See [`START_AT`].
const END_AT: &str = "2099-12-31T23:59:59.999Z";

/// Time to pay in an activity that the generator makes: no unit may come back during a run.
const PAYMENT_TTL: &str = "24h";

/// An activity as the admin API shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Activity {
    /// Its id.
    pub(super) id: u64,
    /// All its units.
    pub(super) total: u64,
    /// Free to buy.
    pub(super) available: u64,
    /// Reserved, unpaid.
    pub(super) locked: u64,
    /// Paid.
    pub(super) sold: u64,
    /// Units a user may hold.
    pub(super) per_user_limit: u64,
}

impl Activity {
    /// One whose figures nobody asks for.
    pub(super) const fn unknown(id: u64) -> Self {
        Self { id, total: 0, available: 0, locked: 0, sold: 0, per_user_limit: 0 }
    }
}

/// The admin API of the server under load.
pub(super) struct Admin {
    client: Client,
    authority: String,
    token: String,
    request: Vec<u8>,
}

impl Admin {
    /// Calls through `client` as the bearer of `token`.
    pub(super) fn new(client: Client, authority: &str, token: String) -> Self {
        Self { client, authority: authority.to_owned(), token, request: Vec::new() }
    }

    /// The activity's figures.
    ///
    /// # Errors
    /// Where the server can't be reached, refuses the token, or has no such activity.
    pub(super) async fn activity(&mut self, id: u64) -> Result<Activity, BenchError> {
        let path = format!("/api/admin/flashsales/{id}");
        self.call("GET", &path, None).await.and_then(|body| parse(&path, body))
    }

    /// Makes an activity with `stock` units that is on sale at once.
    ///
    /// # Errors
    /// Where the server can't be reached or refuses.
    pub(super) async fn open_sale(
        &mut self,
        sku: u64,
        stock: u64,
        limit: u32,
    ) -> Result<Activity, BenchError> {
        let path = "/api/admin/flashsales";
        let body = json!({
            "sku_id": sku, "title": "sluice bench", "price": 100, "stock": stock,
            "per_user_limit": limit, "start_at": START_AT, "end_at": END_AT,
            "payment_ttl": PAYMENT_TTL,
        });
        #[derive(Deserialize)]
        struct Created {
            id: u64,
        }
        let created = self.call("POST", path, Some(&body)).await?;
        let Created { id } = parse(path, created)?;
        self.call("POST", &format!("{path}/{id}/publish"), None).await?;
        self.activity(id).await
    }

    /// One call; its answer's JSON body, `Null` where there is none.
    async fn call(
        &mut self,
        method: &'static str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, BenchError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        // A connection that rested while the load ran may have been closed by the server.
        self.client.disconnect();
        let call = (method, path);
        wire::compose_call(call, &self.authority, &self.token, &body, &mut self.request);
        let reply = self.client.exchange(&self.request).await.map_err(|source| {
            BenchError::Unreachable { authority: self.authority.clone(), source }
        })?;
        let value = serde_json::from_slice(reply.body).unwrap_or(Value::Null);
        if (200..300).contains(&reply.status) {
            return Ok(value);
        }
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        Err(BenchError::Refused {
            method,
            path: path.to_owned(),
            status: reply.status,
            code: text("code"),
            detail: text("detail"),
        })
    }
}

fn parse<T: serde::de::DeserializeOwned>(path: &str, body: Value) -> Result<T, BenchError> {
    serde_json::from_value(body)
        .map_err(|source| BenchError::Unexpected { path: path.to_owned(), source })
}
