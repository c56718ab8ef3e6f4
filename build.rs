//! Link arguments of the shared library and the control plane's generated code.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libreclane.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=proto/control.proto");
    let files = protox::compile(["control.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
