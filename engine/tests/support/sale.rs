//! The sale that tests of the engine over its log begin with.

use engine::Engine;
use engine::core::event::{Actor, DeadLetterPolicy, Definition, LatePayment};
use engine::core::ids::{ActivityId, SkuId};
use engine::core::limits::TIME_MS_MAX;

/// Who runs it.
pub(crate) const ACTOR: Actor<'static> = Actor { name: "admin", request_id: "r" };

/// What is sold, from ever on and for ever.
pub(crate) const PHONE: Definition<'static> = Definition {
    sku: SkuId::new(20_001).unwrap(),
    title: "phone",
    price: 100,
    per_user_limit: 1,
    start_ms: 1,
    end_ms: TIME_MS_MAX,
    payment_ttl_ms: 60_000,
    late_payment: LatePayment::ReinstateOrRefund,
    dead_letter: DeadLetterPolicy::Rollback,
    publish_at_ms: 0,
};

/// Makes an activity and puts it on sale, durably.
pub(crate) fn on_sale(engine: &Engine, total: u32, definition: Definition<'_>) -> ActivityId {
    let created = engine.create(None, ACTOR, total, definition).unwrap();
    let id = created.wait().unwrap().unwrap().id;
    engine.publish(id, ACTOR).unwrap().wait().unwrap().unwrap();
    id
}
