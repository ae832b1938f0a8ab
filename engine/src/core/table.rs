//! The hash tables of the core.

use foldhash::fast::FixedState;

/// A hash table whose layout depends on a secret seed: nothing may rest on its order.
pub(super) type Table<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// Makes tables with one seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables(pub(super) u64);

impl Tables {
    pub(super) fn make<K, V>(self) -> Table<K, V> {
        Table::with_hasher(self.hasher())
    }

    pub(super) fn hasher(self) -> FixedState {
        FixedState::with_seed(self.0)
    }
}
