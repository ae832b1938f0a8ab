//! A Redis changes hands: after a restore it follows another log.

use engine::core::ids::ActivityId;
use redis::cmd;
use wal::LogIdentity;

use super::fault::MirrorError;
use super::layouts::Layout;
use super::library::OwnKeys;
use super::mark::Mark;
use super::nodes::{Address, Nodes};
use super::servers::Servers as _;
use super::sink::ONLY_LANE;

/// Makes the cursors in the Redis at `url` those of `identity`, without a place: its server writes
/// all keys anew when it starts, and one on the old directory finds another log's cursor and ends.
///
/// # Errors
/// Where Redis does not answer.
pub async fn take_over(
    url: &str,
    layout: Layout,
    identity: LogIdentity,
    activities: &[ActivityId],
) -> Result<(), MirrorError> {
    let address = Address::at(url)?;
    let (nodes, lanes) = match layout {
        Layout::Cluster => {
            let lanes = activities.iter().map(|id| (id.get(), OwnKeys::of(Some(id.get()))));
            (Nodes::cluster(&address).await?, lanes.collect())
        }
        _ => (Nodes::one(&address).await?, vec![(ONLY_LANE, OwnKeys::of(None))]),
    };
    let mark = Mark::new(identity, None).to_string();
    for (lane, keys) in lanes {
        let mut set = cmd("SET");
        set.arg(&keys.cursor).arg(&mark);
        nodes.ask::<()>(nodes.index(lane), &set).await?;
    }
    Ok(())
}
