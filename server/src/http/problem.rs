//! Errors as RFC 9457 problem documents.
//!
//! [`Code`] is the one table: the stable code, its status, its title and when to come back.
//! [`Problem::from`] a [`Refusal`] is the one place that says what a refused command is called
//! outside. A problem without a detail of its own is rendered once for the life of the process:
//! most answers of a sale are `sold_out`.

use std::borrow::Cow;
use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::core::command::Refusal;
use engine::{Busy, LogUnavailable};

use crate::identity::Unauthenticated;
use crate::limits::Limited;

macro_rules! problems {
    ($($variant:ident $status:literal $code:literal $title:literal $retry:expr;)*) => {
        /// What went wrong, by its stable name.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Code { $(#[doc = $title] $variant,)* }

        impl Code {
            /// Every code, in order.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),*];

            /// The code as clients match it.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// Its HTTP status.
            pub(crate) fn status(self) -> StatusCode {
                let status = match self { $(Self::$variant => $status,)* };
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }

            /// The code in words.
            pub(crate) const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// `Retry-After`, in seconds.
            pub(crate) const fn retry_after(self) -> Option<&'static str> {
                match self { $(Self::$variant => $retry,)* }
            }
        }
    };
}

problems! {
    InvalidRequest 400 "invalid_request" "The request is not valid" None;
    Unauthenticated 401 "unauthenticated" "A valid bearer token is needed" None;
    BadSignature 401 "bad_signature" "The signature or its time is not good" None;
    Forbidden 403 "forbidden" "The caller's role does not allow this" None;
    Blacklisted 403 "blacklisted" "The caller may not buy" None;
    AdmissionRequired 403 "admission_required" "A good admission token is needed" None;
    TlsRequired 403 "tls_required" "The request did not come over TLS" None;
    NotFound 404 "not_found" "There is nothing at this path" None;
    ActivityNotFound 404 "activity_not_found" "There is no such activity" None;
    PurchaseNotFound 404 "purchase_not_found" "The caller has no such purchase" None;
    OrderNotFound 404 "order_not_found" "The caller has no such order" None;
    PaymentNotFound 404 "payment_not_found" "There is no such payment" None;
    RefundNotFound 404 "refund_not_found" "There is no such refund" None;
    DeadLetterNotFound 404 "dead_letter_not_found" "There is no such dead letter" None;
    MethodNotAllowed 405 "method_not_allowed" "The path does not take this method" None;
    RequestTimeout 408 "request_timeout" "The body did not arrive in time" None;
    NotStarted 409 "not_started" "The sale has not started" None;
    Ended 409 "ended" "The sale has ended" None;
    OffSale 409 "off_sale" "The activity is not on sale" None;
    Paused 409 "paused" "The sale is paused" None;
    SoldOut 409 "sold_out" "Fewer units are free than were asked for" None;
    LimitReached 409 "limit_reached" "The purchase would exceed the limit per user" None;
    AlreadyPaid 409 "already_paid" "The order is paid" None;
    PaidByAnother 409 "paid_by_another" "The order is paid by another payment" None;
    AlreadyRolledBack 409 "already_rolled_back" "The purchase was given back" None;
    ActivityExists 409 "activity_exists" "There is an activity of this id" None;
    LockedWhileInProgress 409 "locked_while_in_progress"
        "Only the title and a lower stock may change now" None;
    StockBelowReserved 409 "stock_below_reserved"
        "The stock would fall below what is reserved or sold" None;
    PaymentInProgress 409 "payment_in_progress" "Another payment of the order is open" None;
    TooManyPayments 409 "too_many_payments" "The order can have no more payments" None;
    NotPaid 409 "not_paid" "The order is not paid" None;
    RefundInProgress 409 "refund_in_progress" "Another refund of the order is open" None;
    AlreadyRefunded 409 "already_refunded" "The order was refunded" None;
    RefundNotOpen 409 "refund_not_open" "The refund was refused by the provider" None;
    TooManyControls 409 "too_many_controls" "There is no room for another entry" None;
    TooManyOperations 409 "too_many_operations"
        "The activity remembers no more stock operations" None;
    SkuOnSale 409 "sku_on_sale"
        "Another activity sells this SKU, and its readers in Redis allow one" None;
    Conflict 409 "conflict" "Something of this name exists with other content" None;
    VersionMismatch 412 "version_mismatch" "The activity has changed since it was read" None;
    PayloadTooLarge 413 "payload_too_large" "The body is too large" None;
    UriTooLong 414 "uri_too_long" "The path and query are too long" None;
    UnsupportedMediaType 415 "unsupported_media_type" "The body is of another media type" None;
    RequestIdReused 422 "request_id_reused" "The request id was used for something else" None;
    RateLimited 429 "rate_limited" "Too many requests; nothing was reserved" Some("1");
    HeadersTooLarge 431 "headers_too_large" "The request's headers are too large" None;
    Internal 500 "internal" "The server made a mistake" None;
    Recovering 503 "recovering" "The server is starting" Some("1");
    Draining 503 "draining" "The server is stopping" Some("5");
    Overloaded 503 "overloaded" "The server is overloaded; nothing was reserved" Some("1");
    LogUnavailable 503 "log_unavailable"
        "The outcome is unknown; repeat with the same id" Some("2");
    DatabaseUnavailable 503 "database_unavailable" "The database does not answer" Some("2");
    OrdinalsExhausted 507 "ordinals_exhausted" "This node can hold no more activities" None;
}

impl Code {
    /// The document of a problem without a detail.
    pub(crate) fn document(self) -> &'static Bytes {
        static NONE: Bytes = Bytes::new();
        RENDERED.get(self as usize).unwrap_or(&NONE)
    }
}

/// An error as it is told to a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    /// What went wrong.
    pub(crate) code: Code,
    /// What about this one request, where there is more to say.
    pub(crate) detail: Option<Cow<'static, str>>,
    /// The limit that refused it.
    pub(crate) limited: Option<Limited>,
}

impl Problem {
    /// `code`, with what is wrong in particular.
    pub(crate) fn with(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: Some(detail.into()), limited: None }
    }

    /// 429 `rate_limited`, with the limit that refused.
    pub(crate) fn limited(limited: Limited) -> Self {
        Self { code: Code::RateLimited, detail: None, limited: Some(limited) }
    }

    /// 400 `invalid_request`, with what is wrong in particular.
    pub(crate) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::with(Code::InvalidRequest, detail)
    }
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self { code, detail: None, limited: None }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(detail) => Self::invalid(detail),
            Refusal::UnknownActivity => Code::ActivityNotFound.into(),
            Refusal::ActivityExists => Code::ActivityExists.into(),
            Refusal::OrdinalsExhausted => Code::OrdinalsExhausted.into(),
            Refusal::SkuOnSale => Code::SkuOnSale.into(),
            Refusal::Paused => Code::Paused.into(),
            Refusal::OffSale => Code::OffSale.into(),
            Refusal::NotStarted => Code::NotStarted.into(),
            Refusal::Ended => Code::Ended.into(),
            Refusal::SoldOut => Code::SoldOut.into(),
            Refusal::LimitReached => Code::LimitReached.into(),
            Refusal::RequestIdReused => Code::RequestIdReused.into(),
            Refusal::VersionMismatch { current } => {
                Self::with(Code::VersionMismatch, format!("its version is now {current}"))
            }
            Refusal::LockedWhileInProgress => Code::LockedWhileInProgress.into(),
            Refusal::StockBelowReserved => Code::StockBelowReserved.into(),
            Refusal::TooManyOperations => Code::TooManyOperations.into(),
            Refusal::UnknownReservation => Code::PurchaseNotFound.into(),
            Refusal::AlreadyPaid => Code::AlreadyPaid.into(),
            Refusal::PaidByAnother => Code::PaidByAnother.into(),
            Refusal::RolledBack => Code::AlreadyRolledBack.into(),
            Refusal::PaymentInProgress => Code::PaymentInProgress.into(),
            Refusal::TooManyPayments => Code::TooManyPayments.into(),
            Refusal::TooManyCallbacks => Code::Overloaded.into(),
            Refusal::NotPaid => Code::NotPaid.into(),
            Refusal::RefundInProgress => Code::RefundInProgress.into(),
            Refusal::AlreadyRefunded => Code::AlreadyRefunded.into(),
            Refusal::UnknownRefund => Code::RefundNotFound.into(),
            Refusal::RefundNotOpen => Code::RefundNotOpen.into(),
            Refusal::TooManyControls => Code::TooManyControls.into(),
            Refusal::NoDeadLetter => Code::DeadLetterNotFound.into(),
            // What only SQL knows can't be had without it.
            Refusal::Archived => Code::DatabaseUnavailable.into(),
        }
    }
}

impl From<Busy> for Problem {
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::Overloaded => Code::Overloaded.into(),
            Busy::LogUnavailable => Code::LogUnavailable.into(),
        }
    }
}

impl From<LogUnavailable> for Problem {
    fn from(_: LogUnavailable) -> Self {
        Code::LogUnavailable.into()
    }
}

impl From<Unauthenticated> for Problem {
    fn from(_: Unauthenticated) -> Self {
        Code::Unauthenticated.into()
    }
}

fn render(code: Code, detail: Option<&str>) -> Bytes {
    let mut document = serde_json::json!({
        "type": format!("urn:problem-type:sluice:{}", code.as_str()),
        "title": code.title(),
        "status": code.status().as_u16(),
        "code": code.as_str(),
    });
    if let Some(detail) = detail {
        document["detail"] = detail.into();
    }
    Bytes::from(document.to_string())
}

static RENDERED: LazyLock<Vec<Bytes>> =
    LazyLock::new(|| Code::ALL.iter().map(|code| render(*code, None)).collect());

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Which limit it was and when to come back: whole seconds, rounded up, so that nobody who obeys
/// comes too early.
fn say_limit(headers: &mut HeaderMap, Limited { scope, rate, wait_ns }: Limited) {
    let wait = wait_ns.div_ceil(1_000_000_000).max(1);
    let window = rate.period_ms.div_ceil(1000).max(1);
    headers.insert(header::RETRY_AFTER, HeaderValue::from(wait));
    for (name, value) in [
        (RATE_LIMIT_POLICY, format!("\"{scope}\";q={};w={window}", rate.count)),
        (RATE_LIMIT, format!("\"{scope}\";r=0;t={wait}")),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
}

impl Problem {
    /// Its document.
    pub(crate) fn body(&self) -> Bytes {
        match (&self.detail, RENDERED.get(self.code as usize)) {
            (None, Some(rendered)) => rendered.clone(),
            (detail, _) => render(self.code, detail.as_deref()),
        }
    }

    /// What is told beside it.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.code.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        if let Some(limited) = self.limited {
            say_limit(headers, limited);
        }
        if self.code == Code::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // The rest of a body that nobody reads would be taken for the next request.
        if matches!(self.code, Code::PayloadTooLarge | Code::RequestTimeout) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.code.status(), self.body()).into_response();
        self.add_headers(response.headers_mut());
        response.extensions_mut().insert(self.code);
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_their_statuses_real() {
        let codes: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        for (index, code) in Code::ALL.iter().enumerate() {
            assert_eq!(*code as usize, index, "RENDERED is indexed by the code");
            let real = code.status() != StatusCode::INTERNAL_SERVER_ERROR;
            assert!(real || *code == Code::Internal, "{}", code.as_str());
        }
    }

    #[test]
    fn every_429_and_503_says_when_to_come_back() {
        for code in Code::ALL {
            let response = Problem::from(*code).into_response();
            let later = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
            let later = later.contains(&response.status());
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), later);
        }
    }

    #[test]
    fn a_limit_names_itself_and_the_second_from_which_it_passes_again() {
        let rate = "5/10s".parse().unwrap();
        let limited = Limited { scope: "user", rate, wait_ns: 1_000_000_001 };
        let response = Problem::limited(limited).into_response();
        for (name, value) in [
            ("retry-after", "2"),
            ("ratelimit", "\"user\";r=0;t=2"),
            ("ratelimit-policy", "\"user\";q=5;w=10"),
        ] {
            assert_eq!(response.headers()[name], value);
        }
    }

    #[test]
    fn a_document_carries_type_title_status_code_and_its_own_detail() {
        let document: serde_json::Value =
            serde_json::from_slice(&render(Code::SoldOut, Some("gone"))).unwrap();
        assert_eq!(document["type"], "urn:problem-type:sluice:sold_out");
        assert_eq!(document["status"], 409);
        assert_eq!(document["code"], "sold_out");
        assert_eq!(document["detail"], "gone");
        assert!(document["title"].as_str().is_some_and(|title| !title.is_empty()));
        assert_eq!(render(Code::SoldOut, None), RENDERED[Code::SoldOut as usize]);
    }

    #[test]
    fn refusals_of_a_purchase_have_the_codes_of_the_contract() {
        for (refusal, status, code) in [
            (Refusal::Invalid("quantity"), 400, "invalid_request"),
            (Refusal::UnknownActivity, 404, "activity_not_found"),
            (Refusal::NotStarted, 409, "not_started"),
            (Refusal::Ended, 409, "ended"),
            (Refusal::OffSale, 409, "off_sale"),
            (Refusal::Paused, 409, "paused"),
            (Refusal::SoldOut, 409, "sold_out"),
            (Refusal::LimitReached, 409, "limit_reached"),
            (Refusal::RequestIdReused, 422, "request_id_reused"),
            (Refusal::AlreadyPaid, 409, "already_paid"),
            (Refusal::RolledBack, 409, "already_rolled_back"),
            (Refusal::LockedWhileInProgress, 409, "locked_while_in_progress"),
            (Refusal::StockBelowReserved, 409, "stock_below_reserved"),
            (Refusal::VersionMismatch { current: 3 }, 412, "version_mismatch"),
        ] {
            let problem = Problem::from(refusal);
            assert_eq!((problem.code.status().as_u16(), problem.code.as_str()), (status, code));
        }
        assert_eq!(Problem::from(Busy::Overloaded).code.as_str(), "overloaded");
        assert_eq!(Problem::from(Busy::LogUnavailable).code.as_str(), "log_unavailable");
    }
}
