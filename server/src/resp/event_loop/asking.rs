//! Connections that wait for SQL: asked when their turn ends, answered when the loop is woken.

use super::EventLoop;
use crate::resp::asked::Asked;
use crate::resp::connection::Connection;
use crate::resp::turn::Outputs as _;

impl EventLoop {
    /// Has SQL asked what the turn could not answer.
    pub(super) fn ask(&mut self) {
        let mut asking = std::mem::take(&mut self.connections.asking);
        for index in asking.drain(..) {
            if let Some(connection) = self.connections.slab.get_mut(index) {
                // What stays says that it waits.
                let asked = connection.asked.replace(Asked::default()).unwrap_or_default();
                self.port.asker.ask(asked, (index, connection.session.id), &self.inbox);
            }
        }
        self.connections.asking = asking;
    }

    /// Takes what SQL has answered to connections that waited for it, and reads on from them.
    pub(super) fn hear_answers(&mut self) {
        for (index, id, bytes) in self.inbox.take() {
            // Another connection may have its place by now.
            let is_its = |connection: &&mut Connection| connection.session.id == id;
            let Some(connection) = self.connections.slab.get_mut(index).filter(is_its) else {
                continue;
            };
            connection.asked = None;
            self.connections.output(index).extend_from_slice(&bytes);
            self.send(index);
            self.enqueue(index);
        }
    }
}
