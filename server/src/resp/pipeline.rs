//! The requests that a connection has sent, one behind the other.

use engine::Engine;

use super::Port;
use super::commands;
use super::request::{Parsed, Parser};
use super::session::Session;
use super::turn::Turn;

/// Decides all whole requests at the beginning of `input`; how many bytes they are.
pub(super) fn decide(
    (port, engine): (&Port, Option<&Engine>),
    (parser, turn): (&mut Parser, &mut Turn),
    session: &mut Session,
    input: &[u8],
) -> usize {
    let mut used = 0;
    while !session.is_ending && !turn.is_full() {
        match parser.parse(&input[used..]) {
            Ok(Parsed::Incomplete) => break,
            Ok(Parsed::Nothing { bytes }) => used += bytes,
            Ok(Parsed::Request { bytes }) => {
                let words = parser.words(&input[used..]);
                commands::dispatch(port, engine, turn, session, words);
                used += bytes;
            }
            Err(error) => {
                session.is_ending = true;
                turn.write(session.address(), |it| it.error_of(format_args!("ERR {error}")));
            }
        }
    }
    used
}
