//! The bytes of events and of a snapshot's items.

use engine::core::codec::{self, FORMAT_VERSION};
use engine::core::snapshot::{IMAGE_VERSION, decode_image, encode_image, image_kind};

/// The first byte is the kind.
pub(crate) fn run(input: &[u8]) {
    let [kind, body @ ..] = input else { return };
    let purchase = codec::Purchase::read(*kind, FORMAT_VERSION, body);
    let Ok(event) = codec::decode(*kind, FORMAT_VERSION, body) else {
        assert_eq!(purchase, None, "what is no event is no purchase");
        return;
    };
    assert_eq!(purchase.is_some(), *kind == codec::PURCHASE_KIND.0, "every purchase is read");
    if let Some(purchase) = purchase {
        let again = [purchase.head().as_slice(), purchase.request_id].concat();
        assert!(again == body, "a purchase has one spelling");
    }
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
