//! The bytes of events and of a snapshot's items.

use engine::core::codec::{self, FORMAT_VERSION, Purchase};
use engine::core::event::Body;
use engine::core::snapshot::{IMAGE_VERSION, decode_image, encode_image, image_kind};

/// The first byte is the kind.
pub(crate) fn run(input: &[u8]) {
    let [kind, body @ ..] = input else { return };
    let purchase = Purchase::read(*kind, FORMAT_VERSION, body);
    let event = codec::decode(*kind, FORMAT_VERSION, body);
    let is_one = matches!(&event, Ok(event) if matches!(event.body, Body::Reserved { .. }));
    assert_eq!(purchase.is_some(), is_one, "both readers know a purchase");
    if let Some(purchase) = purchase {
        assert!([&purchase.head(), purchase.request_id].concat() == body, "both spell it alike");
    }
    let Ok(event) = event else { return };
    codec::check(&event).expect("what is read could be written");
    let mut again = Vec::new();
    codec::encode(&event, &mut again);
    assert!(again == body, "an event has one spelling");
}

/// The first byte is the kind.
pub(crate) fn run_image(input: &[u8]) {
    let [kind, body @ ..] = input else { return };
    let Ok(image) = decode_image(*kind, IMAGE_VERSION, body) else { return };
    assert_eq!(image_kind(&image), *kind);
    let mut again = Vec::new();
    encode_image(&image, &mut again);
    assert!(again == body, "an item has one spelling");
}
