//! H10: every reader of foreign bytes as a function of those bytes.
//!
//! A [`Target`] takes any bytes and panics where what it claims does not hold. The fuzzer (the
//! binary of this crate, `cargo xtask fuzz`) looks for such bytes, led by the branches that they
//! reach; plain tests replay the checked-in corpus, which holds what it has found worth keeping.
//!
//! | target     | claims, beside ending in an answer                                             |
//! |------------|--------------------------------------------------------------------------------|
//! | `frame`    | a frame that is accepted is refused with any bit of it changed                 |
//! | `segments` | of a damaged log a prefix of what was appended is served, or a refusal in one  |
//! |            | line; replay and reader agree                                                  |
//! | `control`  | a directory with any CONTROL is read or refused                                |
//! | `snapshot` | a directory with any snapshot is read or refused                               |
//! | `event`    | an event that reads back is written as the same bytes                          |
//! | `image`    | so is an item of a snapshot                                                    |
//! | `model`    | a history of commands leads the engine where it leads the reference model      |
//! | `resp`     | a request is found however its bytes are cut, and says the same when rewritten |
//! | `body`     | a purchase is accepted exactly where a plain JSON reader would accept it       |
//! | `mirror`   | what the mirror keeps in Redis reads back, and nothing else does               |

mod cursor {
    //! What the mirror's mark needs of the bridge's cursor.

    /// A place in a log.
    #[allow(dead_code, reason = "only made here; the bridge reads it")]
    pub(crate) struct Cursor {
        pub(crate) uuid: wal::LogUuid,
        pub(crate) epoch: wal::Epoch,
        pub(crate) lsn: wal::Lsn,
        pub(crate) chain: u32,
    }
}
mod disk;
mod targets;

#[path = "../../src/checksums.rs"]
mod checksums;

/// A reader of foreign bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in `corpus/`.
    pub name: &'static str,
    /// Bytes beyond which an input is only slower.
    pub bytes_max: usize,
    /// Panics where a claim does not hold.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "frame", bytes_max: 1024, run: targets::frame::run },
    Target { name: "segments", bytes_max: 64, run: targets::segments::run },
    Target { name: "control", bytes_max: 256, run: targets::control::run },
    Target { name: "snapshot", bytes_max: 256, run: targets::snapshot::run },
    Target { name: "event", bytes_max: 512, run: targets::event::run },
    Target { name: "image", bytes_max: 512, run: targets::event::run_image },
    Target { name: "model", bytes_max: 121, run: targets::model::run },
    Target { name: "resp", bytes_max: 512, run: targets::resp::run },
    Target { name: "body", bytes_max: 256, run: targets::body::run },
    Target { name: "mirror", bytes_max: 256, run: targets::mirror::run },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
