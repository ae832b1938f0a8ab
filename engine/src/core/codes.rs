//! The one-byte codes of the log: closed sets of values, each with the byte that stands for it.

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)* }

        impl $name {
            /// Every value, in order of code.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The byte that stands for it in the log.
            pub const fn code(self) -> u8 { self as u8 }

            /// The value behind a byte of the log.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }

        const _: () = {
            let mut at = 0;
            while at < $name::ALL.len() {
                assert!($name::ALL[at].code() as usize == at, "codes are given from 0 on");
                at += 1;
            }
        };
    };
}

codes!(
    /// What a good payment for a rolled-back reservation does.
    LatePayment {
        /// Reinstates it where units and limit still allow, else refunds.
        ReinstateOrRefund = 0,
        /// Always refunds.
        Refund = 1,
    }
);
codes!(
    /// What becomes of a reservation that no order can hold.
    DeadLetterPolicy {
        /// Its units are given back.
        Rollback = 0,
        /// It is kept until an operator retries it or rolls it back.
        Hold = 1,
    }
);
codes!(
    /// The door a reservation came in by.
    Front {
        /// The in-process API.
        Api = 0,
        /// The purchase endpoint.
        Http = 1,
        /// The Redis protocol.
        Resp = 2,
    }
);
codes!(
    /// Why a reservation was given back.
    RestoreReason {
        /// The buyer cancelled.
        Cancelled = 0,
        /// The time to pay ran out.
        Timeout = 1,
        /// No order could hold it.
        DeadLetter = 2,
        /// An operator released it.
        Admin = 3,
        /// A back end called `sluice_restore`.
        Api = 4,
    }
);
codes!(
    /// What was made of a payment callback.
    PaymentVerdict {
        /// It paid its order.
        Accepted = 0,
        /// The same provider transaction again.
        Repeated = 1,
        /// The amount is not the order's.
        WrongAmount = 2,
        /// No payment has that number.
        Unknown = 3,
        /// A second good payment of a paid order: to be refunded.
        SecondPayment = 4,
        /// A good payment that came too late to be honoured: to be refunded.
        Late = 5,
        /// The provider says that it failed.
        Failed = 6,
    }
);
codes!(
    /// Whose money a refund gives back.
    RefundScope {
        /// The order's: the payment that paid it.
        Order = 0,
        /// A payment's that paid nothing: it came late, or second.
        Payment = 1,
    }
);
codes!(
    /// How a dead letter was resolved.
    DeadLetterResolution {
        /// Its order was made after all.
        Delivered = 0,
        /// Its units were given back.
        RolledBack = 1,
    }
);

/// Where a reservation is in its life, as the shard knows it. Whether its order is in SQL is
/// known only above, from the sink's mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Held, unpaid.
    Reserved,
    /// Paid.
    Confirmed,
    /// Given back.
    RolledBack(RestoreReason),
}

impl Status {
    /// The byte of [`Status::RolledBack`] with reason 0; the others follow by reason.
    const ROLLED_BACK: u8 = 2;

    /// The byte that stands for it, in the log and in memory.
    pub const fn code(self) -> u8 {
        match self {
            Self::Reserved => 0,
            Self::Confirmed => 1,
            Self::RolledBack(reason) => Self::ROLLED_BACK + reason.code(),
        }
    }

    /// The status behind a byte.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Reserved),
            1 => Some(Self::Confirmed),
            _ => match RestoreReason::from_code(code - Self::ROLLED_BACK) {
                Some(reason) => Some(Self::RolledBack(reason)),
                None => None,
            },
        }
    }
}
