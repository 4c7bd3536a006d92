#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    prosody_fuzz::run("scram", data);
});
