//! Where a request comes from, and what it says of its device and its arm.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};

use super::headers::single;
use crate::app::Shared;
use crate::canary::Arm;
use crate::gate::{DEVICE_BYTES_MAX, device};
use crate::http::openapi::{Input, Operation, text_schema};
use crate::http::problem::{Code, Problem};
use crate::listener::Peer;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_DEVICE_ID: HeaderName = HeaderName::from_static("x-device-id");
const X_CANARY: HeaderName = HeaderName::from_static("x-canary");
const X_ADMISSION_TOKEN: HeaderName = HeaderName::from_static("x-admission-token");

/// The client of a request.
pub(crate) struct Client {
    /// Its connection.
    pub(crate) peer: Peer,
    /// Its address, behind the proxies that are trusted.
    pub(crate) ip: IpAddr,
    /// The name that it gives its device.
    pub(crate) device: Option<String>,
    /// The arm of the canary that it asks for.
    pub(crate) arm: Option<Arm>,
    /// The admission token that it shows.
    pub(crate) admission: Option<String>,
}

impl FromRequestParts<Arc<Shared>> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let peer = peer_of(parts);
        let forwarded = parts.headers.get_all(&X_FORWARDED_FOR).iter();
        // What is no text is no address either, and ends the walk like one.
        let forwarded: Vec<_> = forwarded.map(|value| value.to_str().unwrap_or("?")).collect();
        let headers = &parts.headers;
        let said = Said {
            device: single(headers, &X_DEVICE_ID)?,
            arm: single(headers, &X_CANARY)?,
            admission: single(headers, &X_ADMISSION_TOKEN)?,
        };
        Self::behind(peer, forwarded.into_iter(), &said, shared)
    }
}

/// What a request's headers say of its client.
pub(crate) struct Said<'a> {
    /// `X-Device-Id`
    pub(crate) device: Option<&'a str>,
    /// `X-Canary`
    pub(crate) arm: Option<&'a str>,
    /// `X-Admission-Token`
    pub(crate) admission: Option<&'a str>,
}

impl Client {
    /// The client behind `peer`, with the addresses that its proxies say they `forwarded` for.
    ///
    /// # Errors
    /// `invalid_request` where what is said of the device is no name.
    pub(crate) fn behind<'a>(
        peer: Peer,
        forwarded: impl DoubleEndedIterator<Item = &'a str>,
        said: &Said<'_>,
        shared: &Shared,
    ) -> Result<Self, Problem> {
        let ip = shared.gate.proxies.client(peer.ip(), forwarded);
        let device = match said.device {
            None => None,
            Some(text) => Some(device(text).ok_or_else(bad_device)?.to_owned()),
        };
        let arm = said.arm.and_then(Arm::from_name);
        Ok(Self { peer, ip, device, arm, admission: said.admission.map(str::to_owned) })
    }
}

impl Input for Client {
    fn describe(operation: &mut Operation) {
        let about = "A name of the caller's device, which may be on the blacklist.";
        operation.takes_header("X-Device-Id", text_schema::<DEVICE_BYTES_MAX>, about);
    }
}

fn bad_device() -> Problem {
    Problem::invalid(format!("X-Device-Id must be 1 to {DEVICE_BYTES_MAX} visible characters"))
}

/// The connection that a request came by.
fn peer_of(parts: &Parts) -> Peer {
    // Only a router that is called without a listener, in a test, knows none.
    let nowhere = || Peer::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    parts.extensions.get::<Peer>().cloned().unwrap_or_else(nowhere)
}

/// Whether a request came over TLS: a proxy that is trusted and says how it was asked knows best;
/// otherwise it is TLS that ends here.
pub(crate) fn came_over_tls(
    shared: &Shared,
    peer: Option<&Peer>,
    forwarded_proto: Option<&str>,
) -> bool {
    peer.is_some_and(|peer| match forwarded_proto {
        Some(proto) if shared.gate.proxies.trust(peer.ip()) => proto == "https",
        _ => peer.is_encrypted(),
    })
}

/// Refuses what did not come over TLS, where that is asked for.
///
/// # Errors
/// `tls_required`
pub(crate) fn require_tls(
    shared: &Shared,
    headers: &HeaderMap,
    peer: Option<&Peer>,
) -> Result<(), Code> {
    if !shared.gate.require_tls {
        return Ok(());
    }
    let forwarded_proto = single(headers, &X_FORWARDED_PROTO).unwrap_or_default();
    if came_over_tls(shared, peer, forwarded_proto) { Ok(()) } else { Err(Code::TlsRequired) }
}
