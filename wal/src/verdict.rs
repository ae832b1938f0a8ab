//! The verdict on the end of a log: a decision table over evidence.
//!
//! The first block that is not the next valid frame, at offset P, is judged by evidence, not by a
//! guess: every frame says how much was known synced when it was written (`synced_through`), so a
//! later intact frame that promises more than P proves that something acknowledged is damaged; a
//! damaged end that nothing promised was never acknowledged.
//!
//! | case | evidence at P                                                        | verdict |
//! |------|----------------------------------------------------------------------|---------|
//! | A    | zero, or what an earlier life left; nothing of this life beyond      | end     |
//! | B    | not the next frame, no promise beyond P, damage within what can be   | end,    |
//! |      | in flight                                                            | reported|
//! | C    | a frame beyond P promises more than P                                | refuse  |
//! | D    | damage reaches further than could be in flight                       | refuse  |
//! | E    | a sealed segment ends before its seal                                | refuse  |
//! | F    | P is unreadable: below a promise refuse; above every promise as B,   | either  |
//! |      | and the file is never used again                                     |         |
//! | G    | CONTROL knows of a clean end elsewhere                               | refuse  |
//! | H    | a frame with right checksums and a wrong link: below a promise       | either  |
//! |      | refuse, else as B                                                    |         |
//! | I    | a segment is missing, twice there, or not the one CONTROL knows      | refuse  |
//! | J    | an unknown format version or incompatible feature                    | refuse  |
//! | K    | the log ends before a snapshot that was made of it                   | refuse  |
//! | L    | no snapshot reads that reaches to where the kept log begins          | refuse  |
//!
//! Where CONTROL knows of a clean end at this very P, and nothing of this life begins there, that
//! is A without a look at what lies beyond: who writes on takes the word back before the first
//! byte, and begins a segment of his own.

use std::fmt;

/// What the evidence at the end of the log says; the letters are those of the table above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Case {
    /// A.
    CleanEnd,
    /// B.
    TornTail,
    /// C.
    PromisedDamage,
    /// D.
    TooMuchDamage,
    /// E.
    SealedDamage,
    /// F, below a promise.
    UnreadablePromised,
    /// F, above every promise.
    UnreadableTail,
    /// G.
    CleanEndMoved,
    /// H, below a promise.
    BrokenLink,
    /// I.
    SegmentMissing,
    /// K.
    EndBeforeSnapshot,
    /// L.
    NoSnapshot,
}

impl Case {
    /// Whether the log may be served from here.
    pub const fn serves(self) -> bool {
        matches!(self, Self::CleanEnd | Self::TornTail | Self::UnreadableTail)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CleanEnd => "the log ends cleanly",
            Self::TornTail => "the last write was torn and never acknowledged",
            Self::PromisedDamage => "acknowledged records are damaged (a later frame vouches)",
            Self::TooMuchDamage => "more is damaged than can have been in flight",
            Self::SealedDamage => "a sealed segment is damaged",
            Self::UnreadablePromised => "the disk does not give acknowledged records back",
            Self::UnreadableTail => "the disk does not give the unacknowledged tail back",
            Self::CleanEndMoved => "the log does not end where the last clean shutdown left it",
            Self::BrokenLink => "an acknowledged frame does not follow from the one before it",
            Self::SegmentMissing => "a segment is missing or not the one that belongs here",
            Self::EndBeforeSnapshot => "the log ends before a snapshot that was made of it",
            Self::NoSnapshot => "no snapshot reads that reaches to where the kept log begins",
        })
    }
}

/// What the clean-shutdown witness in CONTROL says about P.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CleanWitness {
    /// The last process did not end cleanly.
    Silent,
    /// It ended exactly here.
    Agrees,
    /// It ended elsewhere.
    Differs,
}

/// What was found at P.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Nothing,
    Garbage,
    BrokenLink,
    Unreadable,
}

/// All that [`classify`] may look at, for the end of a last segment. A sealed one has nothing to
/// weigh: recovery holds it against its seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Evidence {
    pub(crate) found: Found,
    pub(crate) promised_beyond: bool,
    pub(crate) damage_too_far: bool,
    pub(crate) anything_beyond: bool,
    pub(crate) clean: CleanWitness,
}

/// The decision table.
///
/// # Panics
/// Where it would serve a log that something vouches against, whatever its lines say.
pub(crate) fn classify(evidence: &Evidence) -> Case {
    let Evidence { found, promised_beyond, damage_too_far, anything_beyond, .. } = *evidence;
    if evidence.clean == CleanWitness::Differs {
        return Case::CleanEndMoved;
    }
    let case = match (promised_beyond, found) {
        (true, Found::Unreadable) => Case::UnreadablePromised,
        (true, Found::BrokenLink) => Case::BrokenLink,
        (true, _) => Case::PromisedDamage,
        (false, _) if damage_too_far => Case::TooMuchDamage,
        (false, Found::Unreadable) => Case::UnreadableTail,
        (false, Found::Nothing) if !anything_beyond => Case::CleanEnd,
        // Nothing was being written: what lies beyond is what an earlier life of the file left.
        (false, _) if evidence.clean == CleanWitness::Agrees => Case::CleanEnd,
        (false, _) => Case::TornTail,
    };
    assert!(!case.serves() || !promised_beyond, "W3: {case:?} takes back what was promised");
    assert!(!case.serves() || !damage_too_far, "W9: {case:?} for more than can be in flight");
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: [Found; 4] =
        [Found::Nothing, Found::Garbage, Found::BrokenLink, Found::Unreadable];
    const CLEAN: [CleanWitness; 3] =
        [CleanWitness::Silent, CleanWitness::Agrees, CleanWitness::Differs];

    const CASES: [Case; 12] = [
        Case::CleanEnd,
        Case::TornTail,
        Case::PromisedDamage,
        Case::TooMuchDamage,
        Case::SealedDamage,
        Case::UnreadablePromised,
        Case::UnreadableTail,
        Case::CleanEndMoved,
        Case::BrokenLink,
        Case::SegmentMissing,
        Case::EndBeforeSnapshot,
        Case::NoSnapshot,
    ];

    #[test]
    fn each_case_is_told_in_words_of_its_own_on_one_line() {
        let told: std::collections::BTreeSet<_> = CASES.iter().map(Case::to_string).collect();
        assert_eq!(told.len(), CASES.len());
        assert!(told.iter().all(|text| !text.is_empty() && text.lines().count() == 1));
    }

    fn every_evidence() -> Vec<Evidence> {
        let mut all = Vec::new();
        for bits in 0..8u8 {
            for found in FOUND {
                for clean in CLEAN {
                    all.push(Evidence {
                        promised_beyond: bits & 1 != 0,
                        damage_too_far: bits & 2 != 0,
                        anything_beyond: bits & 4 != 0,
                        found,
                        clean,
                    });
                }
            }
        }
        all
    }

    #[test]
    fn damage_that_anything_vouches_against_is_never_served() {
        for evidence in every_evidence() {
            let vouched = evidence.promised_beyond
                || evidence.damage_too_far
                || evidence.clean == CleanWitness::Differs;
            assert_eq!(classify(&evidence).serves(), !vouched, "{evidence:?}");
        }
    }

    #[test]
    fn every_case_of_the_table_is_reached() {
        let mut cases: Vec<_> = every_evidence().iter().map(classify).collect();
        cases.sort_unstable();
        cases.dedup();
        // Case E is decided by the seal and case I by the listing, before there is a P.
        assert_eq!(cases.len(), 8);
        assert!(!cases.contains(&Case::SegmentMissing) && !cases.contains(&Case::SealedDamage));
    }

    #[test]
    fn behind_a_clean_shutdown_nothing_is_torn_and_what_does_not_read_back_is_told() {
        for found in FOUND {
            for anything_beyond in [false, true] {
                let evidence = Evidence {
                    found,
                    promised_beyond: false,
                    damage_too_far: false,
                    anything_beyond,
                    clean: CleanWitness::Agrees,
                };
                let unreadable = found == Found::Unreadable;
                let case = if unreadable { Case::UnreadableTail } else { Case::CleanEnd };
                assert_eq!(classify(&evidence), case, "{evidence:?}");
            }
        }
    }

    #[test]
    fn a_silent_end_is_clean_only_where_nothing_lies_beyond() {
        let end = Evidence {
            found: Found::Nothing,
            promised_beyond: false,
            damage_too_far: false,
            anything_beyond: false,
            clean: CleanWitness::Silent,
        };
        assert_eq!(classify(&end), Case::CleanEnd);
        assert_eq!(classify(&Evidence { anything_beyond: true, ..end }), Case::TornTail);
    }
}
