//! Which power cuts a disk is put through.
//!
//! | unsynced sectors | cuts                                                                    |
//! |------------------|-------------------------------------------------------------------------|
//! | at most 4        | each old, new or garbage, in every combination                          |
//! | at most 8        | every subset; each one garbage beside all new and all old; 64 mixed      |
//! | more             | none, all, each one missing; each eighth garbage; 128 mixed              |
//!
//! Every subset of at most four unsynced name operations; of more none, all, each one missing. The
//! two are crossed where that gives at most 256 cuts; else every choice of sectors is met by no and
//! all names in turn, and every choice of names by no and all sectors. Beside them stands a
//! process that was killed while the power stayed on.

use wal::device::sim::{Fate, Image};

/// Sectors that are taken through every subset.
const EXHAUSTIVE_SECTORS: usize = 8;
const EXHAUSTIVE_NAMES: usize = 4;
const EXHAUSTIVE_WITH_GARBAGE: usize = 4;
const CROSSED_MAX: usize = 256;
const MIXED: usize = 128;
const MIXED_BESIDE_EXHAUSTIVE: usize = 64;

/// A sequence of random numbers from a seed: splitmix64.
#[derive(Clone, Copy)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// An index into a list of `count`.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("below a usize")
    }
}

/// What happens to a disk whose process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The process is killed, the power stays on.
    Killed,
    /// The power is cut; bit masks over sectors and names.
    Power {
        /// Sectors that reached the disk.
        new: u128,
        /// Sectors that the disk was in the middle of.
        garbage: u128,
        /// Name operations that reached the disk.
        names: u128,
    },
}

impl Cut {
    /// Nothing that was not synced survives.
    pub const NOTHING_SURVIVES: Self = Self::Power { new: 0, garbage: 0, names: 0 };
    /// All of it does.
    pub const ALL_SURVIVES: Self = Self::Power { new: u128::MAX, garbage: 0, names: u128::MAX };

    /// The disk afterwards.
    pub fn of(self, image: &Image) -> Image {
        match self {
            Self::Killed => image.killed(),
            Self::Power { new, garbage, names } => image.power_cut(
                |index| match (bit(new, index), bit(garbage, index)) {
                    (_, true) => Fate::Garbage,
                    (true, false) => Fate::New,
                    (false, false) => Fate::Old,
                },
                |index| bit(names, index),
            ),
        }
    }
}

fn bit(mask: u128, index: usize) -> bool {
    assert!(index < 128, "a workload leaves fewer than 128 sectors unsynced");
    mask >> index & 1 == 1
}

fn low(count: usize) -> u128 {
    if count >= 128 { u128::MAX } else { (1 << count) - 1 }
}

/// All cuts for `image`, as the table above says.
pub fn cuts(image: &Image, random: &mut Random) -> Vec<Cut> {
    let (sectors, names) = image.unsynced();
    let sectors = sector_choices(sectors, random);
    let names = name_choices(names);
    let mut cuts = vec![Cut::Killed];
    if sectors.len() * names.len() <= CROSSED_MAX || names.len() == 1 {
        for &(new, garbage) in &sectors {
            cuts.extend(names.iter().map(|&names| Cut::Power { new, garbage, names }));
        }
        return cuts;
    }
    let ends = [names[0], names[names.len() - 1]];
    for (index, &(new, garbage)) in sectors.iter().enumerate() {
        cuts.push(Cut::Power { new, garbage, names: ends[index % 2] });
    }
    for names in names {
        for new in [0, u128::MAX] {
            cuts.push(Cut::Power { new, garbage: 0, names });
        }
    }
    cuts
}

/// Cuts for `image`: all of them where four sectors or fewer are unsynced, else the ends and some
/// of those between, `count` in all.
pub fn some_cuts(image: &Image, count: usize, random: &mut Random) -> Vec<Cut> {
    let (sectors, names) = image.unsynced();
    if (1..=EXHAUSTIVE_WITH_GARBAGE).contains(&sectors) && names <= 1 {
        return cuts(image, random);
    }
    let mut cuts = vec![Cut::Killed, Cut::NOTHING_SURVIVES, Cut::ALL_SURVIVES];
    while cuts.len() < count && image.unsynced() != (0, 0) {
        let garbage = wide(random) & wide(random) & wide(random);
        cuts.push(Cut::Power { new: wide(random), garbage, names: wide(random) });
    }
    if image.unsynced() == (0, 0) {
        // Both still differ: a failed sync leaves in the cache what the disk does not have.
        cuts.truncate(2);
    }
    cuts
}

fn wide(random: &mut Random) -> u128 {
    u128::from(random.draw()) << 64 | u128::from(random.draw())
}

fn sector_choices(sectors: usize, random: &mut Random) -> Vec<(u128, u128)> {
    let all = low(sectors);
    let mut choices = Vec::new();
    if sectors <= EXHAUSTIVE_WITH_GARBAGE {
        for garbage in 0..=all {
            choices.extend((0..=all).filter(|new| new & garbage == 0).map(|new| (new, garbage)));
        }
        return choices;
    }
    let mixed = if sectors <= EXHAUSTIVE_SECTORS {
        choices.extend((0..=all).map(|new| (new, 0)));
        for sector in 0..sectors {
            choices.extend([(0, 1 << sector), (all, 1 << sector)]);
        }
        MIXED_BESIDE_EXHAUSTIVE
    } else {
        choices.extend([(0, 0), (all, 0)]);
        choices.extend((0..sectors).map(|missing| (all & !(1 << missing), 0)));
        choices.extend((0..sectors).step_by(8).map(|sector| (all, 1 << sector)));
        MIXED
    };
    for _ in 0..mixed {
        let garbage = wide(random) & wide(random);
        choices.push((wide(random) & all, garbage & all));
    }
    choices
}

fn name_choices(names: usize) -> Vec<u128> {
    let all = low(names);
    if names <= EXHAUSTIVE_NAMES {
        return (0..=all).collect();
    }
    let missing = (0..names).map(|missing| all & !(1 << missing));
    [0].into_iter().chain(missing).chain([all]).collect()
}
