//! Generates the messages without protoc, which a fresh machine does not have.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/carril.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".carril.v1.BlobChunk").compile_fds(descriptors)?;
    Ok(())
}
