//! What a provider is asked, and what it may answer.

use std::pin::Pin;

use engine::PendingRefund;
use serde::Serialize;

/// A refund as a provider is asked for it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ask {
    /// The number under which the provider gives money back once, however often it is asked.
    /// Operators' numbers are their orders' alone, so that it names the payment as well.
    pub(super) refund_no: String,
    /// The payment whose money it is.
    pub(super) payment_no: String,
    /// The provider's own number of it.
    pub(super) transaction_no: String,
    /// What goes back, in the smallest unit.
    pub(super) amount: u64,
}

impl Ask {
    pub(super) fn of(refund: &PendingRefund) -> Self {
        Self {
            refund_no: format!("{}-{}", refund.payment_no, refund.refund_no),
            payment_no: refund.payment_no.clone(),
            transaction_no: refund.transaction.clone(),
            amount: refund.amount,
        }
    }
}

/// What a provider answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The money is back.
    Settled,
    /// It will be: to be asked again.
    Taken,
    /// It will not be, ever; why.
    Refused(String),
}

/// There was no answer that counts: whether the money went back is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum ProviderError {
    /// The provider could not be reached, or hung up.
    #[error("the provider can't be reached: {0}")]
    Io(#[from] std::io::Error),
    /// The exchange failed.
    #[error("the exchange with the provider failed: {0}")]
    Http(#[from] hyper::Error),
    /// It took too long.
    #[error("the provider did not answer in time")]
    TimedOut,
    /// It answered with a status that says nothing about the refund.
    #[error("the provider answered with status {0}")]
    Status(u16),
    /// It answered something else than what was agreed.
    #[error("the provider's answer is none")]
    Malformed,
    /// The question could not be put.
    #[error("the question could not be put: {0}")]
    Question(#[from] axum::http::Error),
}

/// An answer to come.
pub(super) type Asking<'a> =
    Pin<Box<dyn Future<Output = Result<Answer, ProviderError>> + Send + 'a>>;

/// Somebody who holds money.
pub(super) trait Provider: Send + Sync {
    /// Has a refund made. The same number again is the same refund.
    fn refund<'a>(&'a self, ask: &'a Ask) -> Asking<'a>;
}

/// A provider that holds no money: it gives everything back at once. For trying things out.
pub(super) struct MockProvider;

impl Provider for MockProvider {
    fn refund<'a>(&'a self, _: &'a Ask) -> Asking<'a> {
        Box::pin(std::future::ready(Ok(Answer::Settled)))
    }
}
