//! Admission: a purchase must show a token that this server gave to this shopper for this sale.
//!
//! Without one the address of a purchase leads nowhere, so nothing can be bought before the token
//! is given, and a script must first do what a shopper's page does. A token may cost a proof of
//! work. Tokens and challenges are signed with a key that this process alone has, end after
//! minutes, and are good once: [`ring`] remembers which were spent, in fixed memory.

mod ring;

use std::fmt::Write as _;

use engine::core::ids::{ActivityId, UserId};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use ring::Ring;

/// How long a token or a challenge is good: a page that was opened a little early.
const TTL_SECONDS: u64 = 120;

/// Characters of a solution.
const SOLUTION_BYTES_MAX: usize = 64;

/// What a ticket is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Admission = 1,
    Challenge = 2,
}

/// A token or a challenge, with its end in Unix seconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    /// What the shopper keeps.
    pub(crate) text: String,
    /// When it ends.
    pub(crate) expires: u64,
}

/// The ticket is forged, another's, for another sale, over, or spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotAdmitted;

/// A token that was spent, and can be given back where the purchase never came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spent(u64);

/// Gives and takes admission tokens.
pub(crate) struct Admission {
    key: [u8; 64],
    tokens: Ring,
    challenges: Ring,
}

/// Of whom and for what a ticket is.
#[derive(Clone, Copy)]
pub(crate) struct Holder {
    /// The shopper.
    pub(crate) user: UserId,
    /// The sale.
    pub(crate) activity: ActivityId,
}

impl Admission {
    /// A key of this process: tickets end with it.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 64];
        getrandom::fill(&mut key)?;
        Ok(Self { key, tokens: Ring::default(), challenges: Ring::default() })
    }

    /// A token for `holder`, from `now` (Unix seconds) on.
    pub(crate) fn token(&self, holder: Holder, now: u64) -> Ticket {
        self.ticket(Purpose::Admission, holder, 0, self.tokens.issue(), now)
    }

    /// A challenge of `bits` for `holder`.
    pub(crate) fn challenge(&self, holder: Holder, bits: u8, now: u64) -> Ticket {
        self.ticket(Purpose::Challenge, holder, bits, self.challenges.issue(), now)
    }

    /// Spends `token`, which must be `holder`'s.
    ///
    /// # Errors
    /// [`NotAdmitted`]
    pub(crate) fn spend(
        &self,
        holder: Holder,
        token: &str,
        now: u64,
    ) -> Result<Spent, NotAdmitted> {
        let (number, _) = self.read(Purpose::Admission, holder, token, now)?;
        if self.tokens.spend(number) { Ok(Spent(number)) } else { Err(NotAdmitted) }
    }

    /// Gives a token back, whose purchase was neither made nor refused.
    pub(crate) fn unspend(&self, spent: Spent) {
        self.tokens.unspend(spent.0);
    }

    /// The token that a solved challenge earns.
    ///
    /// # Errors
    /// [`NotAdmitted`], where it is not solved, or was before.
    pub(crate) fn solved(
        &self,
        holder: Holder,
        challenge: &str,
        solution: &str,
        now: u64,
    ) -> Result<Ticket, NotAdmitted> {
        let (number, bits) = self.read(Purpose::Challenge, holder, challenge, now)?;
        let fits = solution.len() <= SOLUTION_BYTES_MAX;
        if !fits || zero_bits(challenge, solution) < u32::from(bits) {
            return Err(NotAdmitted);
        }
        if !self.challenges.spend(number) {
            return Err(NotAdmitted);
        }
        Ok(self.token(holder, now))
    }

    fn ticket(&self, purpose: Purpose, holder: Holder, bits: u8, number: u64, now: u64) -> Ticket {
        let expires = now.saturating_add(TTL_SECONDS);
        let mac = self.mac(purpose, holder, bits, number, expires).finalize().into_bytes();
        let mut text = format!("{number:x}.{bits:x}.{expires:x}.");
        for byte in mac {
            // Writing to a String can't fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ticket { text, expires }
    }

    /// The number and the bits of a ticket that is ours and not over.
    fn read(
        &self,
        purpose: Purpose,
        holder: Holder,
        text: &str,
        now: u64,
    ) -> Result<(u64, u8), NotAdmitted> {
        let mut parts = text.splitn(4, '.');
        let mut hex = || u64::from_str_radix(parts.next()?, 16).ok();
        let (Some(number), Some(bits), Some(expires)) = (hex(), hex(), hex()) else {
            return Err(NotAdmitted);
        };
        let bits = u8::try_from(bits).map_err(|_| NotAdmitted)?;
        let mac = parts.next().and_then(bytes).ok_or(NotAdmitted)?;
        let ours = self.mac(purpose, holder, bits, number, expires);
        // Compares in constant time.
        ours.verify_slice(&mac).map_err(|_| NotAdmitted)?;
        if now < expires { Ok((number, bits)) } else { Err(NotAdmitted) }
    }

    fn mac(
        &self,
        purpose: Purpose,
        holder: Holder,
        bits: u8,
        number: u64,
        expires: u64,
    ) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.key.into());
        mac.update(&[purpose as u8, bits]);
        for field in [holder.user.get(), holder.activity.get(), number, expires] {
            mac.update(&field.to_le_bytes());
        }
        mac
    }
}

/// 32 bytes out of 64 hexadecimal digits.
fn bytes(hex: &str) -> Option<[u8; 32]> {
    let digits = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate().filter(|_| digits) {
        *byte = u8::from_str_radix(hex.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    digits.then_some(bytes)
}

/// Leading zero bits of SHA-256 over `challenge.solution`.
fn zero_bits(challenge: &str, solution: &str) -> u32 {
    let hash = Sha256::new().chain_update(challenge).chain_update(".").chain_update(solution);
    let mut bits = 0;
    for byte in hash.finalize() {
        bits += byte.leading_zeros();
        if byte != 0 {
            break;
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn holder(user: u64, activity: u64) -> Holder {
        Holder { user: UserId::new(user).unwrap(), activity: ActivityId::new(activity).unwrap() }
    }

    fn solve(challenge: &str, bits: u32) -> String {
        let mut solutions = (0_u64..).map(|number| number.to_string());
        solutions.find(|solution| zero_bits(challenge, solution) >= bits).unwrap()
    }

    #[test]
    fn a_token_admits_its_holder_to_its_sale_once() {
        let admission = Admission::new().unwrap();
        let token = admission.token(holder(7, 10), NOW).text;
        for other in [holder(8, 10), holder(7, 11)] {
            assert_eq!(admission.spend(other, &token, NOW), Err(NotAdmitted));
        }
        assert!(admission.spend(holder(7, 10), &token, NOW).is_ok());
        assert_eq!(admission.spend(holder(7, 10), &token, NOW), Err(NotAdmitted));
    }

    #[test]
    fn a_token_that_bought_nothing_can_be_given_back() {
        let admission = Admission::new().unwrap();
        let token = admission.token(holder(7, 10), NOW).text;
        let spent = admission.spend(holder(7, 10), &token, NOW).unwrap();
        admission.unspend(spent);
        assert!(admission.spend(holder(7, 10), &token, NOW).is_ok());
    }

    #[test]
    fn a_token_ends_and_is_nothing_to_another_process() {
        let (admission, other) = (Admission::new().unwrap(), Admission::new().unwrap());
        let Ticket { text, expires } = admission.token(holder(7, 10), NOW);
        assert_eq!(admission.spend(holder(7, 10), &text, expires), Err(NotAdmitted));
        assert_eq!(other.spend(holder(7, 10), &text, NOW), Err(NotAdmitted));
        assert!(admission.spend(holder(7, 10), &text, expires - 1).is_ok());
    }

    #[test]
    fn what_was_changed_in_a_ticket_makes_it_none() {
        let admission = Admission::new().unwrap();
        let token = admission.token(holder(7, 10), NOW).text;
        for index in 0..token.len() {
            let mut forged = token.clone().into_bytes();
            forged[index] = if forged[index] == b'1' { b'2' } else { b'1' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(admission.spend(holder(7, 10), &forged, NOW).is_err(), "{forged}");
        }
        for text in ["", ".", "...", "1.0.2", "x.y.z.w", &"f".repeat(4096)] {
            assert!(admission.spend(holder(7, 10), text, NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn a_challenge_earns_one_token_by_work_and_none_without() {
        let admission = Admission::new().unwrap();
        let challenge = admission.challenge(holder(7, 10), 8, NOW).text;
        let solution = solve(&challenge, 8);
        let wrong = (0_u64..).map(|it| it.to_string());
        let wrong = wrong.into_iter().find(|it| zero_bits(&challenge, it) < 8).unwrap();
        let solved = |holder, solution: &str| admission.solved(holder, &challenge, solution, NOW);
        assert_eq!(solved(holder(7, 10), &wrong), Err(NotAdmitted));
        assert_eq!(solved(holder(8, 10), &solution), Err(NotAdmitted));
        let token = solved(holder(7, 10), &solution).unwrap().text;
        assert_eq!(solved(holder(7, 10), &solution), Err(NotAdmitted), "solved once");
        assert!(admission.spend(holder(7, 10), &token, NOW).is_ok());
    }

    #[test]
    fn a_challenge_is_no_token_and_a_token_no_challenge() {
        let admission = Admission::new().unwrap();
        let challenge = admission.challenge(holder(7, 10), 0, NOW).text;
        let token = admission.token(holder(7, 10), NOW).text;
        assert_eq!(admission.spend(holder(7, 10), &challenge, NOW), Err(NotAdmitted));
        assert_eq!(admission.solved(holder(7, 10), &token, "0", NOW), Err(NotAdmitted));
    }
}
