//! What the generator makes and computes: specs, kernels, schedules, templates, the verifier and emitted code.
//!
//! One program, because each program is linked on its own, and because its tests share the processors: of many programs, which
//! cargo runs one after the other, each ends with its longest test alone. Suites that measure time are the program `measuring`, and
//! what kills processes of its own is `measure_killed`. One suite: `cargo test --test kernels winograd::`.

mod aarch64;
mod bad_logs;
mod bad_records;
mod bad_specs;
mod bytes_networks;
mod checked;
#[cfg(feature = "cli")]
mod command;
mod compiled;
mod control_flow;
mod conv_planes;
mod cpu_templates;
mod cuda_compiles;
mod cuda_on_cpu;
mod cuda_templates;
mod depthwise_direct;
mod drawn;
mod emit_cuda;
mod few_bits_networks;
mod filetests;
#[path = "../folder/mod.rs"]
mod folder;
mod fuzz_ir;
mod fuzz_spec;
mod fuzz_text;
mod harness;
mod head_order;
mod hopper;
mod instrumented;
mod interp;
mod kinds;
mod leave_one_out;
mod lowering;
mod microkernel;
mod mma;
mod naive_kernels;
mod narrow;
mod network_specs;
#[cfg(feature = "networks")]
mod network_units;
#[cfg(feature = "networks")]
mod networks;
#[cfg(feature = "tune")]
mod never_refused;
#[cfg(feature = "networks")]
mod onnx_nodes;
mod operators;
mod own_cuda;
mod planes;
mod pointwise;
mod quantised;
#[cfg(feature = "networks")]
mod quantised_networks;
#[cfg(feature = "networks")]
mod random_network;
#[cfg(feature = "cli")]
mod records_command;
mod rows;
mod sanitized;
mod schedule;
mod simt;
mod sketch;
mod slices;
mod spec;
mod special_values;
mod split;
mod split_bf16;
mod split_halves;
mod splitk;
mod splitk_pair;
mod stem;
mod structure;
mod sweep;
mod tensor_cores;
mod told;
mod transpose;
mod tuners;
mod verify;
mod verify_templates;
mod via_nhwc;
mod wgmma_knobs;
mod wgmma_tf32;
mod whole_vectors;
mod winograd;
mod winograd_cuda;
mod winograd_fused;
