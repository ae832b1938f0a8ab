//! Redis and log that don't belong together, and two servers on one Redis.

use bridge::cursor::Fork;
use bridge::redis::MirrorError;
use bridge::redis::layouts::Layout;
use bridge::redis::sink::{Bounds, Mirror, Step};

use crate::Shop;
use crate::sale::Sale;

async fn fork_of(shop: &Shop, sale: &Sale) -> Fork {
    let url = shop.server.url(1);
    match Mirror::meet(sale, &url, Layout::Flashsale, Bounds::default()).await {
        Err(MirrorError::Fork(fork)) => fork,
        other => panic!("a fork was expected, not {other:?}"),
    }
}

async fn shop() -> Shop {
    let shop = Shop::open(31);
    shop.sale.run(100);
    shop.catch_up().await.unwrap();
    shop
}

#[tokio::test]
async fn a_cursor_of_another_history_is_a_fork_and_nothing_is_written() {
    let mut shop = shop().await;
    let sale = shop.sale.clone();
    let text: String = shop.say("GET sluice:cursor");
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let with = |at: usize, word: &str| {
        let mut words = words.clone();
        word.clone_into(&mut words[at]);
        words.join(" ")
    };
    let foreign = "00112233445566778899aabbccddeeff";
    for (tampered, expected) in [
        (with(0, foreign), "foreign"),
        (with(1, "9"), "epoch"),
        (with(2, "100000"), "beyond"),
        (with(3, "00000000"), "chain"),
    ] {
        let mut set = redis::cmd("SET");
        let () = set.arg("sluice:cursor").arg(&tampered).query(&mut shop.redis).unwrap();
        let before = crate::keys::present(&mut shop.redis, "*");
        let fork = fork_of(&shop, &sale).await;
        let agrees = match fork {
            Fork::ForeignLog { .. } => expected == "foreign",
            Fork::LaterEpoch { .. } => expected == "epoch",
            Fork::BeyondEnd { .. } => expected == "beyond",
            Fork::Chain { .. } => expected == "chain",
            Fork::NotAFrameEnd { .. } => false,
        };
        assert!(agrees, "{tampered}: {fork}");
        let after = crate::keys::present(&mut shop.redis, "*");
        crate::keys::assert_same(&after, &before, "a fork writes nothing");
    }
}

#[tokio::test]
async fn a_directory_that_was_rolled_back_is_a_fork() {
    let shop = shop().await;
    shop.sale.memory.roll_back_to(3);
    let fork = fork_of(&shop, &shop.sale).await;
    assert!(matches!(fork, Fork::BeyondEnd { .. }), "{fork}");
}

#[tokio::test]
async fn the_older_of_two_servers_is_fenced_off_and_writes_nothing() {
    let mut shop = shop().await;
    let url = shop.server.url(1);
    let (older_sale, newer_sale) = (shop.sale.clone(), shop.sale.reopened());
    let meet = |sale| Mirror::meet(sale, &url, Layout::Flashsale, Bounds::default());
    let mut older = meet(&older_sale).await.unwrap();
    let mut newer = meet(&newer_sale).await.unwrap();
    shop.sale.run(60);
    let mut last = Ok(Step::Moved);
    while matches!(last, Ok(Step::Moved)) {
        last = older.step().await;
    }
    let error = last.unwrap_err();
    assert!(matches!(error, MirrorError::CursorMoved { .. }), "{error}");
    while newer.step().await.unwrap() != Step::CaughtUp {}
    drop((older, newer));
    shop.assert_same();
    let fork = fork_of(&shop, &older_sale).await;
    assert!(matches!(fork, Fork::LaterEpoch { .. }), "{fork}");
}
