//! The mirror leaves what the function library leaves: at the end, and at every cursor on the way.

use bridge::redis::layouts::Layout;
use bridge::redis::sink::{Bounds, Mirror, Step};
use wal::Lsn;

use crate::Shop;
use crate::sale::Sale;
use crate::support::Random;
use crate::valkey::{Valkey, say};

#[tokio::test]
async fn a_history_leaves_the_librarys_keys_in_batches_of_any_size() {
    let server = Valkey::start();
    let mut shop = Shop::on(server, 1);
    for seed in 1..=12 {
        let () = say(&mut shop.redis, "FLUSHALL");
        shop.sale = Sale::open(seed, 3);
        shop.library = crate::library::Library::load(shop.server.connect(0));
        let mut random = Random::new(seed);
        for _ in 0..4 {
            shop.sale.run(150);
            let call_records_max = usize::try_from(1 + random.below(140)).unwrap();
            let step_records_max = usize::try_from(1 + random.below(300)).unwrap();
            let bounds = Bounds { call_records_max, step_records_max };
            let protocol = if seed % 2 == 0 { "resp2" } else { "resp3" };
            let url = shop.server.url_speaking(1, protocol);
            let met = Mirror::meet(&shop.sale, &url, Layout::Flashsale, bounds).await;
            let mut mirror = met.unwrap();
            while mirror.step().await.unwrap() != Step::CaughtUp {}
            drop(mirror);
            shop.assert_same();
        }
    }
}

/// The cursor in Redis, as the LSN of the last record that is there.
fn cursor(shop: &mut Shop) -> Lsn {
    let text: String = shop.say("GET sluice:cursor");
    let words: Vec<&str> = text.split(' ').collect();
    Lsn(words[2].parse::<u64>().unwrap() + words[4].parse::<u64>().unwrap())
}

#[tokio::test]
async fn at_every_cursor_the_keys_are_those_of_the_log_up_to_it() {
    let mut shop = Shop::open(7);
    shop.catch_up().await.unwrap();
    shop.sale.run(120);
    let sale = shop.sale.clone();
    // One call a step, in the middle of frames as often as not.
    let bounds = Bounds { call_records_max: 3, step_records_max: 1 };
    let url = shop.server.url(1);
    let mut seen = 0;
    loop {
        // A new mirror each time: whatever is on the way is cut off by a crash.
        let mut mirror = Mirror::meet(&sale, &url, Layout::Flashsale, bounds).await.unwrap();
        assert!(!mirror.was_resynced());
        let step = mirror.step().await.unwrap();
        drop(mirror);
        let lsn = cursor(&mut shop);
        shop.assert_same_at(lsn);
        seen += 1;
        if step == Step::CaughtUp {
            break;
        }
    }
    assert!(seen > 10);
    shop.assert_same();
}

#[tokio::test]
async fn redis_says_that_it_is_behind_until_it_is_not() {
    let mut shop = Shop::open(3);
    shop.catch_up().await.unwrap();
    assert_eq!(shop.say::<u8>("EXISTS sluice:stale"), 0);
    // The log of this sale was committed in 1970.
    shop.sale.run(50);
    let sale = shop.sale.clone();
    let bounds = Bounds { call_records_max: 2, step_records_max: 1 };
    let url = shop.server.url(1);
    let mut mirror = Mirror::meet(&sale, &url, Layout::Flashsale, bounds).await.unwrap();
    assert_eq!(shop.say::<u8>("EXISTS sluice:stale"), 1);
    while mirror.step().await.unwrap() == Step::Moved {
        assert!(mirror.is_stale());
        assert_eq!(shop.say::<u8>("EXISTS sluice:stale"), 1);
    }
    assert_eq!(shop.say::<u8>("EXISTS sluice:stale"), 0);
    assert_eq!(mirror.applied(), cursor(&mut shop));
}
