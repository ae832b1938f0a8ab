//! What a connection has said about itself.

use std::net::IpAddr;

use super::access::{Class, DEFAULT_USER, Users, WrongPass};
use super::reply::Protocol;
use super::turn::Address;

/// Wrong passwords on one connection: a guesser must at least connect again.
const WRONG_PASSWORDS_MAX: u8 = 8;

/// The state of one connection's conversation.
pub(super) struct Session {
    /// Its place in the loop's table.
    connection: usize,
    /// Its number, given once in the life of the process.
    pub(super) id: u64,
    /// Where it comes from.
    pub(super) ip: IpAddr,
    /// The version it speaks.
    pub(super) protocol: Protocol,
    /// The name it gave itself.
    pub(super) name: String,
    /// Nothing more is read from it, and it ends once its answers are sent.
    pub(super) is_ending: bool,
    who: Option<(Box<str>, Class)>,
    wrong_passwords: u8,
}

impl Session {
    /// A conversation that begins.
    pub(super) fn new((connection, id): (usize, u64), ip: IpAddr, users: &Users) -> Self {
        let mut session = Self {
            connection,
            id,
            ip,
            protocol: Protocol::default(),
            name: String::new(),
            is_ending: false,
            who: None,
            wrong_passwords: 0,
        };
        session.reset(users);
        session
    }

    /// As it was at its beginning.
    pub(super) fn reset(&mut self, users: &Users) {
        self.protocol = Protocol::default();
        self.name.clear();
        self.who = users.is_empty().then(|| (DEFAULT_USER.into(), Class::Admin));
    }

    /// Where an answer to what it asks now goes.
    pub(super) const fn address(&self) -> Address {
        Address { connection: self.connection, protocol: self.protocol }
    }

    /// Who is at the other end; `None` before `AUTH`.
    pub(super) fn who(&self) -> Option<(&str, Class)> {
        self.who.as_ref().map(|(name, class)| (&**name, *class))
    }

    /// Takes somebody's word for who they are, where the password proves it.
    ///
    /// # Errors
    /// [`WrongPass`]: who it was before, it still is. After some of them the connection ends.
    pub(super) fn authenticate(
        &mut self,
        users: &Users,
        name: &[u8],
        password: &[u8],
    ) -> Result<(), WrongPass> {
        match users.verify(name, password) {
            Ok((name, class)) => {
                self.who = Some((name.into(), class));
                Ok(())
            }
            Err(wrong) => {
                self.wrong_passwords += 1;
                self.is_ending = self.wrong_passwords >= WRONG_PASSWORDS_MAX;
                Err(wrong)
            }
        }
    }
}
