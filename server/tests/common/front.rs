//! A server that may be gone and come back elsewhere: whoever has no final answer asks again,
//! under the same id.
#![allow(dead_code, reason = "each test binary uses its own part of the front")]

use std::cell::RefCell;
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

/// The connections of a client, which is a thread: most of its requests need no new one.
#[derive(Default)]
struct Kept {
    http: Option<(SocketAddr, Connection)>,
    resp: Option<(SocketAddr, Client)>,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

impl Kept {
    /// One request over HTTP; `None` leaves its outcome unknown.
    fn call(
        &mut self,
        address: SocketAddr,
        call: (&str, &str),
        token: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let kept = self.http.take().filter(|kept| kept.0 == address);
        let mut connection = kept.map_or_else(|| Connection::new(address), |kept| kept.1);
        let answer = connection.call(call, token, body).ok()?;
        self.http = Some((address, connection));
        Some(answer)
    }

    /// The same over the Redis port.
    fn say(&mut self, address: SocketAddr, line: &str) -> Option<Reply> {
        let mut client = match self.resp.take().filter(|kept| kept.0 == address) {
            Some((_, client)) => client,
            None => Client::try_to(address).ok()?,
        };
        client.send(resp::request(&line.split(' ').collect::<Vec<_>>()));
        let reply = client.reply()?;
        self.resp = Some((address, client));
        Some(reply)
    }
}

/// A way to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Port {
    Http,
    Resp,
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
            let answer = KEPT.with_borrow_mut(|kept| kept.call(places.http, call, &token, body));
            answer.filter(|answer| answer.status != 503)
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

    /// Buys a unit over the Redis port.
    pub(crate) fn buy_over_resp(&self, activity: u64, user: u64, request_id: &str) -> Purchase {
        let line = format!("FCALL sluice_reserve 1 {activity} {user} {request_id} 1");
        let Reply::Array(items) = self.say(&line) else { panic!("{line}: no purchase") };
        match &items[..] {
            [Reply::Integer(1 | 2), Reply::Integer(id), Reply::Bulk(order_no), _] => {
                let id = u64::try_from(*id).unwrap();
                Purchase::Accepted { id, order_no: order_no.clone() }
            }
            [Reply::Integer(0), ..] => Purchase::Refused { code: "sold_out".to_owned() },
            [Reply::Integer(-2), ..] => Purchase::Refused { code: "limit_reached".to_owned() },
            _ => panic!("{line}: {items:?}"),
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
        self.code(&format!("FCALL sluice_confirm 1 {activity} {id} pay-{id}"))
    }

    /// Gives an unpaid one back over the Redis port; the code of the contract.
    pub(crate) fn restore(&self, activity: u64, id: u64) -> i64 {
        self.code(&format!("FCALL sluice_restore 1 {activity} {id}"))
    }

    fn code(&self, line: &str) -> i64 {
        match self.say(line) {
            Reply::Integer(code) => code,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// A command over the Redis port.
    fn say(&self, line: &str) -> Reply {
        self.until_final(line, |places| {
            let reply = KEPT.with_borrow_mut(|kept| kept.say(places.resp, line));
            reply.filter(|reply| !matches!(reply, Reply::Error(_)))
        })
    }
}

fn places(server: &Server) -> Places {
    Places { http: server.address, resp: server.resp() }
}
