//! A server that may be gone and come back elsewhere: whoever has no final answer asks again,
//! under the same id.
#![allow(dead_code, reason = "each test binary uses its own part of the front")]

use std::net::SocketAddr;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::resp::{self, Client, Reply};
use crate::common::{Server, token};
use crate::provider;
use crate::shop::{Answer, Connection};

/// Nothing here takes this long, restarts included.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Between two tries.
pub(crate) const WAIT: Duration = Duration::from_millis(10);

/// Where the server is just now.
pub(crate) struct Front {
    places: RwLock<Places>,
}

#[derive(Clone, Copy)]
struct Places {
    http: SocketAddr,
    resp: SocketAddr,
}

/// What a buyer was told.
pub(crate) enum Purchase {
    Accepted { id: u64, order_no: String },
    Refused { code: String },
}

impl Front {
    /// That of `server`, which speaks both protocols.
    pub(crate) fn of(server: &Server) -> Self {
        Self { places: RwLock::new(places(server)) }
    }

    /// It is another process now.
    pub(crate) fn moved_to(&self, server: &Server) {
        *self.places.write().unwrap() = places(server);
    }

    /// Asks again until `ask` has a final answer.
    fn until_final<T>(&self, what: &str, mut ask: impl FnMut(Places) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            let places = *self.places.read().unwrap();
            if let Some(answer) = ask(places) {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: no answer");
            std::thread::sleep(WAIT);
        }
    }

    /// One request of `user`, method and path first.
    pub(crate) fn call(&self, call: (&str, &str), user: u64, body: Option<&Value>) -> Answer {
        let token = token(user, "user");
        self.until_final(call.1, |places| {
            let answer = Connection::new(places.http).call(call, &token, body);
            answer.ok().filter(|answer| answer.status != 503)
        })
    }

    /// Buys a unit.
    pub(crate) fn buy(&self, activity: u64, user: u64, request_id: &str) -> Purchase {
        let path = format!("/api/flashsales/{activity}/purchase");
        let body = json!({"client_request_id": request_id, "quantity": 1});
        let answer = self.call(("POST", &path), user, Some(&body));
        let text = |name: &str| answer.body[name].as_str().unwrap_or_default().to_owned();
        match answer.status {
            202 => {
                let id = answer.body["pre_deduction_id"].as_u64().unwrap();
                Purchase::Accepted { id, order_no: text("order_no") }
            }
            409 => Purchase::Refused { code: text("code") },
            _ => panic!("{answer:?}"),
        }
    }

    /// Gives an unpaid one back.
    pub(crate) fn cancel(&self, order_no: &str, user: u64) -> Answer {
        self.call(("POST", &format!("/api/orders/{order_no}/cancel")), user, None)
    }

    /// What the owner sees, once it is settled or `wait` is over.
    pub(crate) fn look(&self, id: u64, user: u64, wait: &str) -> Value {
        let path = format!("/api/flashsales/purchases/{id}?wait={wait}");
        let answer = self.call(("GET", &path), user, None);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Pays as a buyer does: a payment is opened, and its provider calls back.
    pub(crate) fn pay_by_callback(&self, order_no: &str, user: u64) {
        let opened =
            self.call(("POST", "/api/payments"), user, Some(&json!({"order_no": order_no})));
        assert_eq!(opened.status, 201, "{opened:?}");
        let payment_no = opened.body["payment_no"].as_str().unwrap();
        let amount = opened.body["amount"].as_u64().unwrap();
        let body = provider::body(payment_no, &format!("t-{payment_no}"), amount, "paid");
        let answer = self.until_final("callback", |places| {
            let answer = provider::try_call_back(places.http, &body);
            answer.filter(|answer| answer.status != 503)
        });
        let verdict = provider::verdict(&answer);
        assert!(["accepted", "repeated"].contains(&verdict.as_str()), "{answer:?}");
    }

    /// Pays, always by the same payment; the code of the contract.
    pub(crate) fn pay(&self, activity: u64, id: u64) -> i64 {
        let line = format!("FCALL sluice_confirm 1 {activity} {id} pay-{id}");
        self.until_final(&line, |places| {
            let mut client = Client::try_to(places.resp).ok()?;
            client.send(resp::request(&line.split(' ').collect::<Vec<_>>()));
            match client.reply()? {
                Reply::Integer(code) => Some(code),
                Reply::Error(_) => None,
                other => panic!("{line}: {other:?}"),
            }
        })
    }
}

fn places(server: &Server) -> Places {
    Places { http: server.address, resp: server.resp() }
}
