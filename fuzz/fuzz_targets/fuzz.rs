//! libFuzzer's program. `CROFT_FUZZ_TARGET` names the target; `scripts/fuzz` sets it.

#![no_main]

use std::sync::LazyLock;

use croft_fuzz::Target;
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("CROFT_FUZZ_TARGET").unwrap_or_default();
    croft_fuzz::target(&name).unwrap_or_else(|| {
        let names: Vec<_> = croft_fuzz::TARGETS.iter().map(|target| target.name).collect();
        panic!("CROFT_FUZZ_TARGET is {name:?}, and none of: {}", names.join(" "));
    })
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
