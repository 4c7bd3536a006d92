//! Writes the C# externs of `ffi.rs` to the output directory. `tests/externs.rs` compares them with the committed file.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=src/abi.rs");
    println!("cargo::rerun-if-changed=src/ffi.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::path::Path::new(&std::env::var("OUT_DIR")?).join("NativeMethods.g.cs");
    csbindgen::Builder::default()
        .input_extern_file("src/ffi.rs")
        .input_extern_file("src/abi.rs")
        .csharp_dll_name("prosody_native")
        .csharp_namespace("Prosody.Interop")
        .csharp_class_name("NativeMethods")
        .csharp_class_accessibility("internal")
        .csharp_use_function_pointer(true)
        .csharp_generate_const_filter(|name| name.starts_with("PR_"))
        .generate_csharp_file(out)?;
    Ok(())
}
