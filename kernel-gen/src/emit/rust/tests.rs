//! What the generated file says. That it compiles, links and computes is shown by the suites that build consumers.

use super::writer::V;
use super::*;
use crate::emit::c::Isa;
use crate::emit::cuda::{Launch, Param, TensorBase, TensorMap};
use crate::ir::DType;
use crate::workload::{Conv2d, Epilogue, Workload};

fn item(name: &str, conv: Conv2d) -> Item {
    let workload = Workload::f32(conv).with_epilogue(&[Epilogue::Bias]);
    let params = |names: &[&str]| {
        let last = names.len() - 1;
        names
            .iter()
            .enumerate()
            .map(|(i, n)| CParam { name: n.to_string(), dtype: DType::F32, written: i == last })
            .collect()
    };
    let program = Program {
        symbol: format!("kg_{name}"),
        params: params(&["x", "w", "bias", "y"]),
        extents: vec![(1, None), (8, None)],
        takes_units: false,
        workspace_bytes: 256,
        worker_bytes: 64,
    };
    let pack = Pack {
        bytes: 4096,
        program: Program {
            symbol: format!("kg_{name}_pack"),
            params: params(&["w", "packed"]),
            extents: vec![(4, None)],
            takes_units: false,
            workspace_bytes: 0,
            worker_bytes: 0,
        },
    };
    let variant = Variant {
        isa: Isa::X86_64V3,
        most: 1,
        program,
        packs: vec![(1, pack)],
        choice: choice("direct v1", Some(12.5)),
    };
    Item {
        name: name.into(),
        workload,
        slices: Default::default(),
        units: None,
        code: Code::Compiled(vec![variant]),
        cuda: vec![],
    }
}

fn choice(template: &str, cost_us: Option<f64>) -> Choice {
    let [template, config, origin, origin_detail] =
        [template, "tile_ow=7", "analytic", "no record"].map(str::to_string);
    Choice { template, config, origin, origin_detail, cost_us }
}

fn module() -> Module {
    // The second and the third share all shapes: 7x7 to 3x3, once with stride 2 and once with dilation 2.
    let items = vec![
        item("plain", Conv2d::nchw(1, 4, 8, 8, 4, 3, 1, 1)),
        item("strided", Conv2d::nchw(1, 4, 7, 7, 4, 3, 2, 0)),
        item("dilated", Conv2d { dilation: [2, 2], ..Conv2d::nchw(1, 4, 7, 7, 4, 3, 1, 0) }),
    ];
    Module {
        networks: vec![],
        spec: "kernels.toml".into(),
        functions: vec![Function { name: "conv2d_nchw".into(), items }],
        report: "plain analytic\n".into(),
        images: "kernel-gen-kernels".into(),
    }
}

#[test]
fn shapes_that_two_workloads_share_are_left_to_their_modules() {
    let text = emit(&module());
    assert!(text.contains("impl Conv2dNchwShapes for (kernel_gen_runtime::D4<1, 4, 8, 8>,"), "{text}");
    assert_eq!(text.matches("impl Conv2dNchwShapes for").count(), 1);
    assert!(text.contains("note = \"declared: plain: x [1, 4, 8, 8], w [4, 4, 3, 3], bias [4], y [1, 4, 8, 8]\""));
    assert!(text.contains("note = \"by name only, `dilated::launch_unpacked`: dilated: x [1, 4, 7, 7]"));
    assert!(text.contains("/// * [`strided::launch_unpacked`]: `conv2d-nchw-f32-n1c4h7w7-o4k3x3-s2x2"));
    assert!(text.contains("pub mod plain {") && text.contains("pub mod dilated {"));
}

#[test]
fn each_phase_is_declared_and_called_with_its_pointers() {
    let text = emit(&module());
    let declaration = "fn kg_plain_p1(x: *const f32, w: *const f32, bias: *const f32, y: *mut f32, \
                       ws: *mut u8, worker: i64, begin: i64, end: i64);";
    assert!(text.contains(declaration), "{text}");
    assert!(text.contains("fn kg_plain_pack_p0(w: *const f32, packed: *mut f32, ws: *mut u8,"));
    assert!(text.contains("v2::program(&[v2::phase(v0_p0, 1, None), v2::phase(v0_p1, 8, None)], 256, 64),"));
    assert!(text.contains("cost_us: Some(12.5)"));
}

#[test]
fn code_that_is_absent_leaves_the_calls_and_says_why() {
    let mut module = module();
    for (item, code) in module.functions[0]
        .items
        .iter_mut()
        .zip([Code::Absent("documentation build".into()), Code::Unresolved("kernel_gen_found_no_c_compiler".into())])
    {
        item.code = code;
    }
    module.functions[0].items.pop();
    let text = emit(&module);
    assert!(text.contains("no_code: \"documentation build\""));
    assert!(text.contains("fn kernel_gen_found_no_c_compiler();") && text.contains("Isa::LOWEST"));
    assert!(!text.contains("kg_plain"));
}

#[test]
fn lines_end_as_on_unix() {
    assert!(!emit(&module()).contains('\r'));
}

#[test]
fn gpu_code_stands_inside_the_macro_that_drops_it_without_the_feature() {
    let mut module = module();
    let program = |name: &str| CudaProgram {
        image: format!("{name}.kgi"),
        launches: vec![Launch {
            symbol: format!("kg_{name}"),
            grid: [7, 2, 1],
            block: [128, 1, 1],
            cluster: [2, 1, 1],
            dynamic_shared_bytes: 98304,
            overlap: Some(vec![1]),
            early_units: 1,
            first: None,
            params: vec![
                Param::TensorMap(TensorMap {
                    base: TensorBase::Buffer(0),
                    offset: 0,
                    dtype: DType::F16,
                    dims: vec![64, 32],
                    rows: 0,
                    strides: vec![128],
                    box_dims: vec![64, 8],
                    steps: vec![1, 1],
                    swizzle: 128,
                }),
                Param::Buffer { index: 3, name: "y".into(), written: true },
                Param::Workspace { offset: 256, bytes: 256, name: "t".into() },
            ],
        }],
        workspace_bytes: 512,
    };
    module.functions[0].items[0].cuda = vec![CudaVariant {
        arch: "sm_90a".into(),
        capability: (9, 0),
        exact: true,
        most: 1,
        program: program("plain"),
        packs: vec![(1, CudaPack { bytes: 64, program: program("plain_pack0") })],
        align: 16,
        choice: choice("tiled v1", None),
    }];
    let text = emit(&module);
    let table = &text[text.find("cuda_table!({").unwrap()..text.find(") };").unwrap()];
    assert!(table.contains("static SLOT_0_0") && table.contains("static SLOT_0_1"), "{table}");
    assert!(table.contains("concat!(env!(\"OUT_DIR\"), \"/kernel-gen-kernels/plain.kgi\")"));
    assert!(table.contains("kernel_gen_runtime::cuda::Arch { name: \"sm_90a\", capability: (9, 0), exact: true },"));
    let args = "KernelArg::Map(0), kernel_gen_runtime::cuda::KernelArg::Param(3), kernel_gen_runtime::cuda::KernelArg::Workspace(256)],";
    assert!(table.contains(args));
    assert!(table.contains("v2::cuda::pack(1, 64,") && table.contains("v2::cuda::variant("), "{table}");
    // Entries without GPU code have an empty table, and nothing of it is named outside of the macro.
    assert_eq!(text.matches("cuda_table!(&[])").count(), 2);
    assert_eq!(text.matches("::cuda::").count(), table.matches("::cuda::").count());
}

#[test]
fn the_file_names_its_format_and_its_generator_in_one_macro_around_all_items() {
    let text = file("pub const A: u32 = 1;\n");
    let by = format!("kernel_gen_runtime::generated! {{ format 2, by \"kernel-gen {}\";", env!("CARGO_PKG_VERSION"));
    let (before, inside) = text.split_once(&by).unwrap();
    assert!(before.lines().all(|l| l.is_empty() || l.starts_with("//")), "{before}");
    assert!(inside.contains("pub const A") && inside.ends_with("}\n"));
    // The module of constructors is the one that the format has.
    assert_eq!(V, format!("v{FORMAT}"));
}

#[cfg(feature = "tune")]
#[test]
fn the_limits_of_launches_are_the_runtimes() {
    use kernel_gen_runtime::cuda;
    assert_eq!((MAX_KERNEL_ARGS, MAX_TENSOR_MAPS), (cuda::MAX_KERNEL_ARGS, cuda::MAX_TENSOR_MAPS));
}
