//! The boundary's rules that a compiler cannot see: the committed C# externs are current, every export is guarded.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

use std::path::Path;

const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/NativeMethods.g.cs"));
const FFI: &str = include_str!("../src/ffi.rs");

/// `PROSODY_BLESS=1 cargo test -p prosody-ffi --test externs` writes the file instead.
#[test]
fn the_committed_externs_are_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../csharp/src/Prosody/Interop/NativeMethods.g.cs");
    if std::env::var_os("PROSODY_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, GENERATED).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == GENERATED,
        "csharp/…/NativeMethods.g.cs is out of date: run this test with PROSODY_BLESS=1"
    );
}

/// An export without its guard aborts the host on a panic; one made by a macro is missing in C#.
#[test]
fn every_export_is_guarded_and_generated() {
    let exports: Vec<&str> = FFI.split("#[unsafe(no_mangle)]").skip(1).collect();
    assert_eq!(
        FFI.matches("extern \"C\" fn").count(),
        exports.len(),
        "an export without no_mangle or the reverse"
    );
    for export in exports {
        let name = export.split("fn ").nth(1).unwrap().split('(').next().unwrap();
        let body = export.split_once(" {\n").unwrap().1.trim_start();
        let guards = [format!("guard(\"{name}\","), format!("guard_or(\"{name}\",")];
        assert!(
            guards.iter().any(|guard| body.starts_with(guard)),
            "{name} does not start with its own guard"
        );
        assert!(GENERATED.contains(&format!("EntryPoint = \"{name}\"")), "{name} has no extern in C#");
        assert!(!export.split_once(" {\n").unwrap().0.contains("bool"), "{name} takes or returns a bool");
    }
    assert!(!FFI.contains("macro_rules"));
}
