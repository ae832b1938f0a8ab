//! The connections of a loop, and the outputs lent to those that have something to send.

use slab::Slab;

use super::archived::Question;
use super::connection::Connection;
use super::turn::{Address, Outputs};

/// Outputs kept for connections that have something to send.
const OUTPUTS_KEPT: usize = 1024;

/// An output larger than this is not kept.
const OUTPUT_KEPT_BYTES: usize = 64 * 1024;

/// The connections of a loop.
#[derive(Default)]
pub(super) struct Connections {
    /// By the number that the kernel's events carry.
    pub(super) slab: Slab<Connection>,
    spare_outputs: Vec<Vec<u8>>,
    /// Those that got answers in this turn.
    pub(super) answered: Vec<usize>,
    /// Those for which SQL is to be asked.
    pub(super) asking: Vec<usize>,
}

impl Outputs for Connections {
    fn output(&mut self, connection: usize) -> &mut Vec<u8> {
        let connection_of = &mut self.slab[connection];
        if let Some(asked) = &mut connection_of.asked {
            return asked.rest();
        }
        let output = &mut connection_of.output;
        if output.is_empty() {
            self.answered.push(connection);
            if output.capacity() == 0 {
                *output = self.spare_outputs.pop().unwrap_or_default();
            }
        }
        output
    }

    fn ask(&mut self, to: Address, question: Question) {
        let asked = &mut self.slab[to.connection].asked;
        if asked.is_none() {
            self.asking.push(to.connection);
        }
        asked.get_or_insert_default().question(question, to.protocol);
    }
}

impl Connections {
    /// Takes an output back that was sent to its end.
    pub(super) fn give_back(&mut self, output: Vec<u8>) {
        if output.capacity() <= OUTPUT_KEPT_BYTES && self.spare_outputs.len() < OUTPUTS_KEPT {
            self.spare_outputs.push(output);
        }
    }
}
