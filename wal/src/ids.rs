//! Numbers that must not be mixed.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// The number `steps` further on.
            ///
            /// # Panics
            /// Where 64 bits do not hold it: at a billion a second that takes five centuries.
            #[must_use]
            pub const fn plus(self, steps: u64) -> Self {
                match self.0.checked_add(steps) {
                    Some(sum) => Self(sum),
                    None => panic!("a 64-bit number of the log is exhausted"),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A record's place in the log. Records are numbered from 1 without gaps (W4), so that a gap
    /// or a repeat is visible at once; 0 stands for "before the first".
    Lsn
);
number!(
    /// A segment's number, from 1 without gaps.
    SegmentId
);
number!(
    /// The incarnation of the process that wrote: one more at every open (W11).
    Epoch
);

/// Identity of a log, drawn when its directory is formatted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LogUuid(pub [u8; 16]);

impl fmt::Display for LogUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Which log, in which incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogIdentity {
    /// The log.
    pub uuid: LogUuid,
    /// The incarnation.
    pub epoch: Epoch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_s_identity_is_told_in_two_digits_a_byte() {
        let mut uuid = LogUuid([0x0A; 16]);
        uuid.0[15] = 0xF0;
        assert_eq!(uuid.to_string(), format!("{}f0", "0a".repeat(15)));
        assert_eq!(Lsn(7).plus(3).to_string(), "10");
    }

    #[test]
    #[should_panic = "a 64-bit number of the log is exhausted"]
    fn a_number_that_64_bits_do_not_hold_is_none() {
        let _ = Lsn(u64::MAX - 1).plus(2);
    }
}
