//! Generates the kernels that the networks' specs declare.

fn main() {
    // The kernels of ResNet-18 in f32, and the pooling layers, are those of `examples/resnet18`.
    for network in ["resnet18_f16", "resnet50", "resnet50_f16"] {
        let spec = format!("../../specs/{network}.toml");
        kernel_gen_build::configure().spec(spec).module(network).tuned("../../specs/tuned").generate_or_exit();
    }
}
