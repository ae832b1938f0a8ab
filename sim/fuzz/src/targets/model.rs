//! The engine's core against the reference model, on histories that an input spells: two bytes name
//! a command out of a list that the strategies of the model-based test have drawn.

use std::sync::LazyLock;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

#[path = "../../../../engine/tests/model_based/history.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "the test's own code, which panics to fail")]
mod history;
#[path = "../../../../engine/tests/model_based/op.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "the test's own code, which panics to fail")]
mod op;
#[path = "../../../../engine/tests/support/mod.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "the test's own code, which panics to fail")]
mod support;

/// Commands to choose from. The same in every run: an input means what it meant.
const OPS: usize = 4096;
const OPENINGS: usize = 16;

fn drawn<S: Strategy>(strategy: S, count: usize) -> Vec<S::Value> {
    let mut runner = TestRunner::deterministic();
    (0..count).filter_map(|_| Some(strategy.new_tree(&mut runner).ok()?.current())).collect()
}

static COMMANDS: LazyLock<Vec<op::Op>> = LazyLock::new(|| drawn(op::op(), OPS));
static BEGINNINGS: LazyLock<Vec<Vec<op::Op>>> = LazyLock::new(|| drawn(op::openings(), OPENINGS));

pub(crate) fn run(input: &[u8]) {
    let [beginning, named @ ..] = input else { return };
    let (commands, beginnings) = (&*COMMANDS, &*BEGINNINGS);
    let named = named.chunks_exact(2).map(|word| usize::from(word[0]) | usize::from(word[1]) << 8);
    let ops: Vec<_> = named.map(|name| &commands[name % commands.len()]).collect();
    let mut history = history::History::new();
    let beginning = &beginnings[usize::from(*beginning) % beginnings.len()];
    for op in beginning.iter().chain(ops.iter().copied()) {
        history.run(op).unwrap_or_else(|error| panic!("{error}: {ops:#?}"));
    }
    history.finish().unwrap_or_else(|error| panic!("{error}: {ops:#?}"));
}
