//! Client and server of one call, without a file for protoc: the messages are plain bytes.

fn main() {
    // Not for every file beside it, which is what cargo does without a word.
    println!("cargo:rerun-if-changed=build.rs");
    let call = tonic_prost_build::manual::Method::builder()
        .name("call")
        .route_name("Call")
        .input_type("crate::grpc::Bytes")
        .output_type("crate::grpc::Bytes")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = tonic_prost_build::manual::Service::builder().name("Rows").package("rows").method(call).build();
    tonic_prost_build::manual::Builder::new().compile(&[service]);
}
