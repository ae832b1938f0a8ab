//! What a handler's parameters say of its operation.
//!
//! A handler that takes a token asks for one, whoever wrote it and whatever they wrote about it.
//! So that part of the document is read off the function's type.

use std::sync::Arc;

use axum::extract::{Request, State};

use super::operation::Operation;
use crate::app::Shared;
use crate::http::request_id::RequestId;

/// A parameter of a handler.
pub(crate) trait Input {
    /// Adds what it asks for, and what it refuses with.
    fn describe(operation: &mut Operation);
}

/// A handler whose parameters are `Args`.
pub(crate) trait Signature<Args> {
    /// Adds what all of them say.
    fn describe(operation: &mut Operation);
}

macro_rules! signatures {
    ($(($($input:ident)*))*) => {$(
        impl<F, Answer, $($input,)*> Signature<($($input,)*)> for F
        where
            F: Fn($($input,)*) -> Answer,
            $($input: Input,)*
        {
            fn describe(_operation: &mut Operation) {
                $(<$input as Input>::describe(_operation);)*
            }
        }
    )*};
}

signatures! {
    ()
    (A)
    (A B)
    (A B C)
    (A B C D)
    (A B C D E)
    (A B C D E G)
    (A B C D E G H)
}

/// Parameters that a caller does not see. A raw request says nothing: its operation has to say
/// what body it takes.
macro_rules! silent {
    ($($input:ty)*) => {$(
        impl Input for $input {
            fn describe(_: &mut Operation) {}
        }
    )*};
}

silent! { State<Arc<Shared>> RequestId Request }
