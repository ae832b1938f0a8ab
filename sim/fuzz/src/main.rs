//! The fuzzer, for the target that `SLUICE_FUZZ` names: `cargo xtask fuzz` builds it so that it
//! sees its coverage, and starts it. Its options are libFuzzer's.

#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<&'static fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("SLUICE_FUZZ").unwrap_or_default();
    let known: Vec<_> = fuzz::TARGETS.iter().map(|target| target.name).collect();
    fuzz::target(&name).unwrap_or_else(|| panic!("SLUICE_FUZZ is one of {}", known.join(", ")))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = &*TARGET;
    (target.run)(&bytes[..bytes.len().min(target.bytes_max)]);
});
