//! ResNet-18 and ResNet-50 on a GPU: each a list of lines over generated kernels, whose shapes are types.

pub mod network;
pub mod resnet18;
pub mod resnet50;

/// The generated kernels. Those of ResNet-18 in f32 are in the package `resnet18`.
pub mod kernels {
    kernel_gen_runtime::include_kernels!(resnet18_f16);
    kernel_gen_runtime::include_kernels!(resnet50);
    kernel_gen_runtime::include_kernels!(resnet50_f16);
}
