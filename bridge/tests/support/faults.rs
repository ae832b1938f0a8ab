//! A store that fails at a chosen operation, in one of the ways that databases fail.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bridge::sql::database::{DatabaseStore, DatabaseTransaction};
use bridge::sql::store::{Lookup, Record, Rows, Store, StoreError, Transaction, Value};

use super::place::Place;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The operation is not done and fails: before COMMIT, the connection breaks.
    Refused,
    /// The operation is done and its answer is lost: after COMMIT, nobody knows.
    ReplyLost,
    /// The process is killed before the operation: the database is what its files are now. Where
    /// it is a server, it kills the connection, and the operation meets what that leaves.
    Killed,
    /// The process, or the connection, is killed after the operation.
    KilledAfter,
    /// The database's server is killed before the operation, and started again.
    ServerKilled,
    /// The database's server is killed after the operation, and started again.
    ServerKilledAfter,
}

/// Those that every database can have.
pub const FAULTS: [Fault; 4] =
    [Fault::Refused, Fault::ReplyLost, Fault::Killed, Fault::KilledAfter];

#[derive(Default)]
pub struct Plan {
    /// The fault and how many operations go well before it.
    pub next: Option<(u64, Fault)>,
    /// Where the files were when the process was killed.
    pub image: Option<PathBuf>,
    /// Operations done.
    pub operations: u64,
    pub images: u64,
}

pub type SharedPlan = Rc<RefCell<Plan>>;

pub struct FaultyStore {
    inner: DatabaseStore,
    place: Place,
    plan: SharedPlan,
}

impl FaultyStore {
    pub fn new(place: &Place, plan: &SharedPlan) -> Self {
        let inner = place.database().store();
        Self { inner, place: place.clone(), plan: Rc::clone(plan) }
    }
}

fn lost() -> StoreError {
    sqlx::Error::WorkerCrashed.into()
}

/// The fault that is due now, if one is.
fn due(plan: &SharedPlan) -> Option<Fault> {
    let mut plan = plan.borrow_mut();
    plan.operations += 1;
    match &mut plan.next {
        Some((0, fault)) => {
            let fault = *fault;
            plan.next = None;
            Some(fault)
        }
        Some((left, _)) => {
            *left -= 1;
            None
        }
        None => None,
    }
}

/// Copies the files as they are, as a killed process leaves them.
fn take_image(plan: &SharedPlan, path: &Path) {
    let mut plan = plan.borrow_mut();
    plan.images += 1;
    let image = path.with_file_name(format!("image-{}-{}.db", plan.operations, plan.images));
    std::fs::copy(path, &image).unwrap();
    let wal = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    if wal(path).exists() {
        std::fs::copy(wal(path), wal(&image)).unwrap();
    }
    plan.image = Some(image);
}

/// What a kill leaves.
async fn kill(plan: &SharedPlan, place: &Place) {
    match place {
        Place::Sqlite { path, .. } => take_image(plan, path),
        Place::MariaDb { .. } => place.kill_connections().await,
    }
}

pub struct FaultyTransaction<'a> {
    inner: DatabaseTransaction<'a>,
    place: Place,
    plan: SharedPlan,
}

macro_rules! faulty {
    ($self:ident, $operation:expr) => {{
        let (plan, place) = (Rc::clone(&$self.plan), $self.place.clone());
        match due(&plan) {
            None => $operation,
            Some(Fault::Refused) => Err(lost()),
            Some(Fault::Killed) => {
                kill(&plan, &place).await;
                match place {
                    Place::Sqlite { .. } => Err(lost()),
                    Place::MariaDb { .. } => {
                        let met = $operation;
                        assert!(met.is_err(), "the connection was killed");
                        met
                    }
                }
            }
            Some(Fault::ServerKilled) => {
                place.kill_server();
                let met = $operation;
                assert!(met.is_err(), "the server was killed");
                met
            }
            Some(Fault::ServerKilledAfter) => {
                $operation?;
                place.kill_server();
                Err(lost())
            }
            Some(Fault::ReplyLost) => {
                $operation?;
                Err(lost())
            }
            Some(Fault::KilledAfter) => {
                $operation?;
                kill(&plan, &place).await;
                Err(lost())
            }
        }
    }};
}

impl Store for FaultyStore {
    type Transaction<'a> = FaultyTransaction<'a>;

    async fn begin(&mut self) -> Result<FaultyTransaction<'_>, StoreError> {
        let inner = self.inner.begin().await?;
        Ok(FaultyTransaction { inner, place: self.place.clone(), plan: Rc::clone(&self.plan) })
    }
}

impl Transaction for FaultyTransaction<'_> {
    async fn insert(&mut self, rows: &Rows<'_>) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        faulty!(self, self.inner.insert(rows).await)
    }

    async fn update(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        if rows.is_empty() {
            return Ok(0);
        }
        faulty!(self, self.inner.update(rows).await)
    }

    async fn select(
        &mut self,
        lookup: &Lookup,
        keys: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        faulty!(self, self.inner.select(lookup, keys).await)
    }

    async fn delete(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        if rows.is_empty() {
            return Ok(0);
        }
        faulty!(self, self.inner.delete(rows).await)
    }

    async fn commit(self) -> Result<(), StoreError> {
        faulty!(self, self.inner.commit().await)
    }
}
