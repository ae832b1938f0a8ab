//! What is on sale, as shoppers see it. Nothing here waits: figures are those that the last
//! durable commit published.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use engine::ActivityView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::archived;
use super::input::{Params, Segment};
use super::json;
use super::openapi::{Api, Operation, Tag};
use super::problem::{Code, Problem};
use super::views::ActivityJson;
use crate::app::Shared;
use crate::identity::Caller;
use crate::time::Instant;

/// Items of a page at most.
const PAGE_SIZE_MAX: usize = 100;
/// Items of a page where nobody says.
const PAGE_SIZE_DEFAULT: usize = 20;

/// `?page=&page_size=`, from 1.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "CataloguePage")]
pub(super) struct Page {
    /// From 1.
    #[schemars(range(min = 1))]
    page: Option<usize>,
    /// Items of a page; 20 where it is left out.
    #[schemars(range(min = 1, max = PAGE_SIZE_MAX))]
    page_size: Option<usize>,
}

impl Page {
    /// Items to skip, and items to show.
    pub(super) fn window(&self) -> Result<(usize, usize), Problem> {
        let size = self.page_size.unwrap_or(PAGE_SIZE_DEFAULT);
        let page = self.page.unwrap_or(1);
        if !(1..=PAGE_SIZE_MAX).contains(&size) || page == 0 {
            return Err(Problem::invalid("page starts at 1 and page_size is 1 to 100"));
        }
        Ok(((page - 1).saturating_mul(size), size))
    }
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Activities")]
struct ListJson<'a> {
    server_time: Instant,
    items: Vec<ActivityJson<'a>>,
}

/// What is on sale.
pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/api/flashsales",
            list,
            Operation::new(Tag::Sale, "listActivities", "What is on sale")
                .about("Activities that are published and have not ended, by id.")
                .answers::<ListJson<'_>>(200, "A page of them"),
        )
        .get(
            "/api/flashsales/{id}",
            detail,
            Operation::new(Tag::Sale, "getActivity", "One activity, and what the caller holds")
                .answers::<DetailJson<'_>>(200, "The activity, in whatever state it is")
                .refuses(&[Code::ActivityNotFound])
                .reads()
                .asks_sql(),
        )
}

/// `GET /api/flashsales`: published and not ended, by id.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    _: Caller,
    Params(page): Params<Page>,
) -> Result<Response, Problem> {
    let (skip, take) = page.window()?;
    let engine = &shared.app()?.engine;
    let on_sale = shared.on_sale.ids(engine).await?;
    let now_ms = engine.now_ms();
    // They were found a moment ago: what has been taken off since is not shown.
    let is_shown = |view: &ActivityView| view.on_sale && now_ms <= view.terms.end_ms;
    let ids = on_sale.iter().skip(skip).take(take);
    let shown: Vec<ActivityView> =
        ids.filter_map(|id| engine.activity(*id)).filter(is_shown).collect();
    json(&ListJson {
        server_time: Instant(now_ms),
        items: shown.iter().map(|view| ActivityJson::at(view, now_ms)).collect(),
    })
    .map(IntoResponse::into_response)
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ActivityDetail")]
struct DetailJson<'a> {
    #[serde(flatten)]
    activity: ActivityJson<'a>,
    server_time: Instant,
    /// To the start, from then on to the end.
    remain_seconds: u64,
    /// Units that the caller holds.
    held: u64,
}

/// `GET /api/flashsales/{id}`: one activity, in whatever state, and what the caller holds of it.
pub(super) async fn detail(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    segment: Segment,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let (engine, id) = (&app.engine, segment.activity()?);
    let held = engine.held(id, caller.user)?.durable().await?;
    let now_ms = engine.now_ms();
    let Some(view) = engine.activity(id) else {
        let row = archived::activity(app, id).await?;
        return json(&DetailJson {
            activity: ActivityJson::archived(&row),
            server_time: Instant(now_ms),
            remain_seconds: 0,
            held: archived::held(app, id, caller.user).await?,
        })
        .map(IntoResponse::into_response);
    };
    json(&DetailJson {
        activity: ActivityJson::at(&view, now_ms),
        server_time: Instant(now_ms),
        remain_seconds: remain_seconds(&view, now_ms),
        held: held.into(),
    })
    .map(IntoResponse::into_response)
}

/// Whole seconds to the start, and from then to the end: rounded up, so that a client that waits
/// them is never early.
fn remain_seconds(view: &ActivityView, now_ms: u64) -> u64 {
    let until = if now_ms < view.terms.start_ms { view.terms.start_ms } else { view.terms.end_ms };
    until.saturating_sub(now_ms).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_starts_at_one_and_has_a_hundred_items_at_most() {
        let window = |page, page_size| Page { page, page_size }.window().ok();
        assert_eq!(window(None, None), Some((0, PAGE_SIZE_DEFAULT)));
        assert_eq!(window(Some(3), Some(100)), Some((200, 100)));
        assert_eq!(window(Some(usize::MAX), Some(100)).map(|window| window.1), Some(100));
        for (page, page_size) in [(Some(0), None), (None, Some(0)), (None, Some(101))] {
            assert_eq!(window(page, page_size), None);
        }
    }
}
