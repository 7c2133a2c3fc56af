//! Every value of the knobs of the Hopper kernels, alone and together: the verifier passes the kernel, and what the
//! interpreter computes from it stays within the derived bound of the f64 reference.
//!
//! `cuda_templates.rs` draws configs at random; here are shapes that clusters divide, that reach over the edge of the
//! last tile, with fewer tiles than multiprocessors and with more, and epilogues that read memory.

use kernel_gen::analysis::verify::{check, verify};
use kernel_gen::interp::{self, Mode, Values};
use kernel_gen::ir::DType;
use kernel_gen::lower::insert_barriers::insert_barriers;
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::space::Config;
use kernel_gen::target::{Device, Target};
use kernel_gen::templates::Registry;
use kernel_gen::workload::Workload;
use kernel_gen::workload::bound::reference_with_bounds;
use kernel_gen::workload::sample::{self, Rng};

/// A Hopper with so many multiprocessors, so that small products have more tiles than it.
fn hopper(multiprocessors: i64) -> Target {
    let mut target = Target::find("sm_90a").expect("a built-in target").clone();
    if let Device::Cuda(cuda) = &mut target.device {
        cuda.sm_count = multiprocessors;
    }
    target
}

/// Runs a config on a workload, as scheduled and as lowered.
fn run(template: &str, target: &Target, key: &str, out: DType, config: &str) {
    let what = format!("{template} on {key} with {config}");
    let workload = Workload { out_dtype: out, ..Workload::from_key(key).expect("a key") };
    let registry = Registry::builtin();
    let template = registry.find(template).expect("a template");
    let config = Config::parse(config).expect("a config");
    let config = template.space(&workload, target).expect("it applies").normalise(&config);
    let config = config.unwrap_or_else(|e| panic!("{what}: {e}"));
    let scheduled = template.schedule(&workload, target, &config).unwrap_or_else(|e| panic!("{what}: {e}"));
    let kernel = insert_barriers(scheduled.schedule.kernel);
    let faults = |faults: Vec<_>| faults.iter().map(ToString::to_string).collect::<Vec<String>>().join("\n");
    let verified =
        verify(kernel.clone(), &target.limits()).unwrap_or_else(|f| panic!("{what}\n{}\n{kernel}", faults(f)));
    let lowered = lower(verified, &LowerOptions::cuda()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = check(lowered.kernel(), &target.limits());
    assert!(found.is_empty(), "{what}, lowered\n{}", faults(found));

    let inputs = sample::uneven_inputs(&workload, &mut Rng::new(7));
    let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let reference = reference_with_bounds(&workload, &views);
    let params = workload.params();
    let mut values: Values = params.iter().zip(&inputs).map(|(p, data)| (p.name.to_string(), data.clone())).collect();
    for pack in scheduled.packs {
        let given = Values::from([(pack.param.clone(), values[&pack.param].clone())]);
        let mut packed = interp::run(&insert_barriers(pack.kernel), &given, Mode::Declared).expect("it packs");
        values.insert(pack.param, packed.remove("packed").expect("its output"));
    }
    for kernel in [&kernel, lowered.kernel()] {
        let mut outputs =
            interp::run(kernel, &values, Mode::Declared).unwrap_or_else(|e| panic!("{what}: {e}\n{kernel}"));
        let output = outputs.remove(params.last().expect("an output").name).expect("the output");
        if let Err(mismatch) = reference.check(output) {
            panic!("{what}: {mismatch}\n{kernel}");
        }
    }
}

/// Tiles whose columns are no multiple of a block's or of a stored piece's: the last block brings more than is multiplied, and the
/// last piece has fewer columns.
#[test]
fn tiles_of_equal_parts_of_the_outputs_compute_what_the_reference_does() {
    let target = hopper(3);
    for (i, knobs) in knobs().iter().enumerate() {
        let out = [DType::F16, DType::F32][i / 4 % 2];
        let (columns, bn) = [(512, 112), (216, 80), (352, 176)][i % 3];
        let epilogue = ["bias.residual_add", "bias.relu"][i / 2 % 2];
        let order = ["nn", "nt"][i / 8 % 2];
        let n = if knobs.contains("columns") { 2 * columns } else { columns };
        let key = format!("matmul-f16-m256n{n}k24-{order}-{epilogue}");
        run("wgmma_gemm", &target, &key, out, &format!("consumers=2 row_blocks=1 bn={bn} stages=2 group=1 {knobs}"));
    }
}

/// Windows of the input that serve all taps: every schedule and store; kernels that are wide, high, even and spread; channels that
/// fill a quarter, a half, all and more than a row; images that tiles reach over; output channels in several tiles.
#[test]
fn windows_compute_what_the_reference_does() {
    let target = hopper(3);
    let cases = [
        ("n2c16h19w9-o24k3x3-s1x1-p1.1.1.1-d1x1", "bn=32 tile_w=8", DType::F16),
        ("n1c32h20w18-o64k3x3-s1x1-p0.0.0.0-d1x1", "bn=64 tile_w=16", DType::F32),
        ("n3c64h9w11-o64k1x3-s1x1-p0.1.0.1-d1x1", "bn=64 tile_w=8", DType::F16),
        ("n1c48h10w17-o72k4x2-s1x1-p2.0.1.1-d1x1", "bn=80 tile_w=8", DType::F16),
        ("n2c88h9w9-o136k2x3-s1x1-p1.1.1.1-d2x2", "bn=64 tile_w=8", DType::F16),
        ("n1c136h9w9-o40k2x2-s1x1-p0.1.1.0-d1x1", "bn=48 tile_w=16", DType::F32),
    ];
    let ways = [
        "consumers=1 row_blocks=2 stages=2 schedule=cooperative store=tma",
        "consumers=2 row_blocks=1 stages=3 schedule=cooperative store=registers",
        "consumers=2 row_blocks=2 stages=2 schedule=pingpong store=tma",
        "consumers=2 row_blocks=2 stages=2 schedule=cooperative store=tma",
        "consumers=2 row_blocks=2 stages=2 schedule=pingpong store=registers",
    ];
    for (i, (size, config, out)) in cases.iter().enumerate() {
        for (j, way) in ways.iter().enumerate() {
            let epilogue = ["bias.relu", "bias.residual_add.relu"][(i + j) % 2];
            let key = format!("conv2d-nhwc-f16-{size}-g1-{epilogue}");
            run("wgmma_window", &target, &key, *out, &format!("{config} {way}"));
        }
    }
}

/// Where weights leave no room for two windows, or a window is larger than the copy engine takes, the template says so: whatever
/// it applies to has a default, inside of its space.
#[test]
fn windows_that_do_not_fit_are_refused() {
    let (target, registry) = (hopper(132), Registry::builtin());
    let template = registry.find("wgmma_window").expect("a template");
    let mut refused = 0;
    for channels in (8..=256).step_by(8) {
        for rest in ["o64k3x3-s1x1-p1.1.1.1-d1x1", "o200k5x5-s1x1-p2.2.2.2-d1x1", "o24k2x2-s1x1-p0.0.0.0-d250x250"] {
            let key = format!("conv2d-nhwc-f16-n2c{channels}h300w300-{rest}-g1-bias.relu");
            let workload = Workload::from_key(&key).expect("a key");
            match template.admits(&workload, &target) {
                Ok(()) => {
                    let default = template.default_config(&workload, &target).expect("a default");
                    let space = template.space(&workload, &target).expect("a space");
                    assert!(space.normalise(&default).is_ok(), "{key}: {default}");
                }
                Err(why) => {
                    assert!(why.contains("do not fit in shared memory"), "{why}");
                    refused += 1;
                }
            }
        }
    }
    assert!((64..96).contains(&refused), "{refused}");
}

/// The models of both templates agree with what was measured on which of them is for a layer: few channels want windows (24 and 34
/// us, 350 and 556), small maps waste their tiles (27 and 23).
#[test]
fn windows_are_for_few_channels_on_large_maps() {
    let (target, registry) = (hopper(132), Registry::builtin());
    let us = |template: &str, workload: &Workload| {
        let template = registry.find(template).expect("a template");
        let default = template.default_config(workload, &target).expect("it applies");
        template.cost(workload, &target, &default)
    };
    for (size, windows) in [("c64h56w56-o64", true), ("c64h224w224-o64", true), ("c128h28w28-o128", false)] {
        let key = format!("conv2d-nhwc-f16-n64{size}k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu");
        let workload = Workload::from_key(&key).expect("a key");
        let (window, conv2d) = (us("wgmma_window", &workload), us("wgmma_conv2d", &workload));
        assert_eq!(window < conv2d, windows, "{key}: {window} and {conv2d} us");
    }
}

/// Every schedule, store and depth of waiting, for each way of sharing.
fn knobs() -> Vec<String> {
    let mut all = vec![];
    for cluster in ["none", "rows", "columns"] {
        for schedule in ["cooperative", "pingpong"] {
            for store in ["registers", "tma"] {
                for pending in [0, 1] {
                    all.push(format!("cluster={cluster} schedule={schedule} store={store} pending={pending}"));
                }
            }
        }
    }
    all
}

#[test]
fn products_with_every_knob_compute_what_the_reference_does() {
    // Two blocks, or one cluster, work through all tiles.
    let target = hopper(2);
    for (i, knobs) in knobs().iter().enumerate() {
        // In all orders of storage; the last row and column of tiles reach over the edge.
        let order = ["nn", "nt", "tn", "tt"][i % 4];
        let key = format!("matmul-f16-m248n120k72-{order}-bias.residual_add");
        let out = [DType::F16, DType::F32][i / 4 % 2];
        run("wgmma_gemm", &target, &key, out, &format!("consumers=2 row_blocks=1 bn=64 stages=2 group=4 {knobs}"));
    }
}

#[test]
fn convolutions_with_every_knob_compute_what_the_reference_does() {
    let target = hopper(4);
    for (i, knobs) in knobs().iter().enumerate() {
        let out = [DType::Bf16, DType::F32][i / 4 % 2];
        // Tiles of images only, of rows of pixels, and of both.
        let (size, h, w) = [("n250c8h1w2", 1, 1), ("n7c8h3w5", 4, 8), ("n60c8h3w2", 2, 2)][i % 3];
        let key = &format!("conv2d-nhwc-bf16-{size}-o72k2x2-s1x1-p1.1.0.0-d1x1-g1-bias.relu");
        let config = format!("consumers=2 row_blocks=1 bn=64 stages=2 group=1 {knobs} tile_h={h} tile_w={w}");
        run("wgmma_conv2d", &target, key, out, &config);
    }
}

/// Blocks of a cluster share a reduction: parts of unequal length, tiles that reach over the edge, columns that no vector
/// divides, all orders of storage and both lengths of elements.
#[test]
fn parts_of_a_reduction_meet_in_a_cluster() {
    let target = hopper(8);
    let cases = [
        ("matmul-f16-m72n40k264-nn-bias.residual_add", "bn=64 split=2 stages=3 pending=1", DType::F16),
        ("matmul-f16-m40n37k392-nt-bias.relu", "bn=32 split=4 stages=2 pending=0", DType::F16),
        ("matmul-bf16-m64n130k392-nt", "bn=64 split=4 stages=2 pending=1", DType::F32),
        ("matmul-f16-m8n72k456-tt-bias", "bn=128 split=8 stages=2 pending=0", DType::F16),
        ("batch_matmul-bf16-b2m64n64k136-tn-scale.residual_add", "bn=64 split=2 stages=2 pending=1", DType::Bf16),
        ("matmul-f32-tf32-m72n40k200-nt-bias", "bn=32 split=4 stages=2 pending=1", DType::F32),
    ];
    for (product, config, out) in cases {
        let rest = "consumers=1 row_blocks=1 group=4 cluster=none schedule=cooperative store=registers";
        run("wgmma_gemm", &target, product, out, &format!("{config} {rest}"));
    }
}

/// Reductions whose last step is 16, 32 or 48 deep, and tiles of 96 and 160 columns, in blocks and output
/// pieces of 32: with every knob, every order of storage, residuals, and both lengths of elements.
#[test]
fn ragged_reductions_and_columns_compute_what_the_reference_does() {
    for (i, knobs) in knobs().iter().enumerate() {
        let out = [DType::F16, DType::F32][i / 4 % 2];
        let (channels, bn) = [("c96h3w5-o192", 96), ("c80h3w5-o160", 160), ("c48h3w5-o96", 96)][i % 3];
        let epilogue = ["bias.relu", "bias.residual_add.relu"][i / 2 % 2];
        let key = format!("conv2d-nhwc-f16-n15{channels}k1x2-s1x1-p0.0.0.1-d1x1-g1-{epilogue}");
        let config = format!("consumers=2 row_blocks=1 bn={bn} stages=2 group=1 {knobs} tile_h=4 tile_w=8");
        // Clusters of columns need two tiles of them.
        if !knobs.contains("columns") || channels.ends_with("o192") {
            run("wgmma_conv2d", &hopper(4), &key, out, &config);
        }
        let order = ["nn", "nt", "tn", "tt"][i % 4];
        let key = format!("matmul-bf16-m248n192k{}-{order}-bias", [72, 112, 136][i % 3]);
        let out = [DType::Bf16, DType::F32][i / 4 % 2];
        run("wgmma_gemm", &hopper(2), &key, out, &format!("consumers=2 row_blocks=1 bn=96 stages=2 group=4 {knobs}"));
    }
    let parts = "consumers=1 row_blocks=1 bn=96 stages=2 group=1 cluster=none schedule=cooperative store=registers";
    let key = "matmul-f16-m40n96k264-nn-bias.residual_add";
    run("wgmma_gemm", &hopper(132), key, DType::F16, &format!("{parts} pending=1 split=2"));
}

/// Tiles that have all of few outputs: of 16, 32 and 48 columns, in blocks and pieces of 16 and 32; with every knob, both lengths
/// of outputs, residuals, and last steps of any depth.
#[test]
fn few_outputs_have_tiles_of_their_own() {
    for (i, knobs) in knobs().iter().enumerate() {
        if knobs.contains("columns") {
            continue;
        }
        let (outputs, bn) = [(16, 16), (24, 32), (32, 32), (48, 48), (40, 48)][i % 5];
        let out = [DType::F16, DType::F32][i / 4 % 2];
        let epilogue = ["bias.relu", "bias.residual_add.relu"][i / 2 % 2];
        let (filter, tile) =
            [("k1x1-s1x1-p0.0.0.0", "tile_h=4 tile_w=8"), ("k3x1-s2x1-p1.0.1.0", "tile_h=2 tile_w=8")][i % 2];
        let key = format!("conv2d-nhwc-f16-n31c72h5w7-o{outputs}{filter}-d1x1-g1-{epilogue}");
        let config = format!("consumers=2 row_blocks=1 bn={bn} stages=2 group=1 {knobs}");
        run("wgmma_conv2d", &hopper(2), &key, out, &format!("{config} {tile}"));
        let key = format!("conv2d-nhwc-bf16-n31c72h5w7-o{outputs}k1x1-s1x1-p0.0.0.0-d1x1-g1-{epilogue}");
        let out = if out == DType::F16 { DType::Bf16 } else { out };
        if !knobs.contains("rows") {
            run("wgmma_gemm", &hopper(2), &key, out, &config);
        }
    }
    // Where few tiles share their reductions, the tile of all outputs is one of theirs.
    let parts = "consumers=1 row_blocks=1 stages=2 group=1 cluster=none schedule=cooperative store=registers pending=1";
    for bn in [32, 48] {
        let key = "conv2d-nhwc-f16-n1c264h7w7-o40k1x1-s1x1-p0.0.0.0-d1x1-g1-bias.relu";
        run("wgmma_gemm", &hopper(132), key, DType::F16, &format!("{parts} bn={bn} split=2"));
    }
}

/// Columns that leave none empty are offered where they are equal parts of the outputs, and the default for 96 and 160 takes them:
/// one tile of 160 takes 15.1 us of this layer, three of 64 take 21.8.
#[test]
fn tiles_of_96_and_160_columns_are_equal_parts_of_outputs() {
    let (target, registry) = (hopper(132), Registry::builtin());
    let template = registry.find("wgmma_conv2d").expect("a template");
    for (outputs, offered) in [(96, vec![96]), (160, vec![160]), (480, vec![96, 160]), (256, vec![96]), (128, vec![])] {
        let key = format!("conv2d-nhwc-f16-n64c160h17w17-o{outputs}k1x7-s1x1-p0.3.0.3-d1x1-g1-bias.relu");
        let workload = Workload::from_key(&key).expect("a key");
        let space = template.space(&workload, &target).expect("it applies");
        for bn in [96, 160] {
            let rest = "stages=2 group=1 cluster=none schedule=cooperative store=tma pending=1 tile_h=1 tile_w=16";
            let config = Config::parse(&format!("consumers=1 row_blocks=1 bn={bn} {rest}")).expect("a config");
            assert_eq!(space.normalise(&config).is_ok(), offered.contains(&bn), "{outputs} outputs, {bn} columns");
        }
        if let Some((_, bn)) = [(96, 96), (160, 160)].into_iter().find(|(of, _)| *of == outputs) {
            let default = template.default_config(&workload, &target).expect("a default");
            assert_eq!(default.int("bn"), Ok(bn), "{outputs} outputs: {default}");
        }
    }
}

/// Blocks of a cluster share the taps and channels of a convolution: unequal parts, taps in the padding, channels that fill no
/// step, strides and dilation, tiles of several images, and columns that reach over the edge.
#[test]
fn parts_of_a_convolution_meet_in_a_cluster() {
    let rest = "consumers=1 row_blocks=1 group=1 cluster=none schedule=cooperative store=registers";
    let cases = [
        (
            "f16-n1c200h7w7-o72k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.residual_add.relu",
            "bn=32 split=8 stages=3 tile_h=8 tile_w=8",
        ),
        ("bf16-n2c136h9w5-o104k3x1-s2x1-p1.0.1.0-d1x1-g1-bias", "bn=64 split=2 stages=2 tile_h=4 tile_w=8"),
        ("f16-n3c64h6w4-o96k2x2-s1x1-p0.1.1.0-d2x1-g1-relu", "bn=96 split=2 stages=2 tile_h=2 tile_w=4"),
        ("f16-n1c96h5w9-o64k1x1-s2x2-p0.0.0.0-d1x1-g1", "bn=64 split=2 stages=2 tile_h=4 tile_w=8"),
    ];
    for (i, (size, config)) in cases.into_iter().enumerate() {
        let out = if i == 1 { DType::F32 } else { DType::F16 };
        let config = format!("{config} {rest} pending={}", i % 2);
        run("wgmma_conv2d", &hopper(132), &format!("conv2d-nhwc-{size}"), out, &config);
    }
    // The last layers of a network with one image are what parts are for.
    let workload =
        Workload::from_key("conv2d-nhwc-f16-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu").expect("a key");
    let registry = Registry::builtin();
    let template = registry.find("wgmma_conv2d").expect("a template");
    let default = template.default_config(&workload, &hopper(132)).expect("a default");
    assert!(default.int("split").expect("the knob") > 1, "{default}");
    assert!(template.schedule(&workload, &hopper(132), &default).is_ok(), "{default}");
}

/// The knob is there only where tiles are few, and only for tiles that can be shared.
#[test]
fn reductions_are_shared_where_tiles_are_few() {
    let (target, registry) = (hopper(132), Registry::builtin());
    let template = registry.find("wgmma_gemm").expect("a template");
    let normalised = |key: &str, config: &str| {
        let workload = Workload::from_key(key).expect("a key");
        let space = template.space(&workload, &target).expect("it applies");
        let rest = "row_blocks=1 stages=2 group=1 schedule=cooperative pending=1";
        space.normalise(&Config::parse(&format!("{config} {rest}")).expect("a config")).map(drop)
    };
    let few = "matmul-f16-m64n1000k2048-nt-bias";
    assert_eq!(normalised(few, "consumers=1 bn=64 cluster=none store=registers split=8"), Ok(()));
    assert_eq!(normalised(few, "consumers=2 bn=64 cluster=none store=tma split=1"), Ok(()));
    for refused in [
        "consumers=2 bn=64 cluster=none store=registers split=8",
        "consumers=1 bn=64 cluster=columns store=registers split=8",
        "consumers=1 bn=64 cluster=none store=tma split=8",
        "consumers=1 bn=32 cluster=none store=registers split=1",
    ] {
        assert!(normalised(few, refused).is_err(), "{refused}");
    }
    let many = "matmul-f16-m1024n1024k1024-nn";
    assert_eq!(normalised(many, "consumers=1 bn=64 cluster=none store=registers"), Ok(()));
    assert!(normalised(many, "consumers=1 bn=64 cluster=none store=registers split=8").is_err());
    // Blocks that share a reduction fill the machine.
    let workload = Workload::from_key(few).expect("a key");
    let default = template.default_config(&workload, &target).expect("a default");
    assert!(default.int("split").expect("the knob") > 1, "{default}");
    assert!(template.schedule(&workload, &target, &default).is_ok(), "{default}");
}

/// Tiles of a pointwise convolution go over the ends of images and of their rows; three consumers have 192 rows.
#[test]
fn pointwise_convolutions_are_products_of_their_pixels() {
    let cases = [
        ("f16-n5c72h7w9-o72", "bias.residual_add.relu", "consumers=3 bn=64 stages=2 store=tma pending=0"),
        ("bf16-n4c136h7w7-o200", "bias", "consumers=3 bn=128 stages=2 store=registers pending=1"),
        ("f16-n3c64h11w5-o40", "gate.residual_add", "consumers=2 bn=64 stages=3 store=tma pending=1"),
    ];
    for (i, (size, epilogue, config)) in cases.into_iter().enumerate() {
        let key = format!("conv2d-nhwc-{size}k1x1-s1x1-p0.0.0.0-d1x1-g1-{epilogue}");
        let rest = ["cluster=none", "cluster=none", "cluster=rows"][i];
        let config = format!("{config} row_blocks=1 group=4 schedule=cooperative {rest}");
        run("wgmma_gemm", &hopper(2), &key, DType::F16, &config);
    }
    // One image: its reduction is shared.
    let config = "consumers=1 bn=64 stages=2 store=registers pending=1 row_blocks=1 group=1 schedule=cooperative";
    let key = "conv2d-nhwc-f16-n1c264h7w7-o72k1x1-s1x1-p0.0.0.0-d1x1-g1-bias.residual_add.relu";
    run("wgmma_gemm", &hopper(132), key, DType::F16, &format!("{config} cluster=none split=2"));
}

/// Residuals come through 2, 3 and 4 buffers a consumer, as the ring leaves room, in rounds of a tile's 1 to 4 pieces that
/// begin anywhere among them; with all epilogues around, and tiles that reach over every edge of the output.
#[test]
fn residuals_that_come_ahead_are_added_where_they_belong() {
    let target = hopper(4);
    let cases = [
        ("bias.residual_add.relu", "consumers=2 row_blocks=1 bn=64 stages=7 schedule=pingpong", DType::F16),
        ("residual_add", "consumers=2 row_blocks=1 bn=64 stages=7 schedule=cooperative", DType::F16),
        ("scale.residual_add.gelu", "consumers=1 row_blocks=2 bn=128 stages=6 schedule=cooperative", DType::F16),
        ("bias.relu.residual_add", "consumers=1 row_blocks=1 bn=64 stages=2 schedule=cooperative", DType::F32),
        (
            "multiply.gate.residual_add.image_bias",
            "consumers=2 row_blocks=1 bn=64 stages=4 schedule=pingpong",
            DType::F16,
        ),
        ("residual_add.scale.relu6", "consumers=2 row_blocks=1 bn=192 stages=4 schedule=cooperative", DType::F16),
    ];
    for (epilogue, config, out) in cases {
        let key = format!("conv2d-nhwc-f16-n18c8h3w7-o136k1x1-s1x1-p0.0.0.0-d1x1-g1-{epilogue}");
        let config = format!("{config} group=1 cluster=none store=tma pending=1 tile_h=4 tile_w=8");
        run("wgmma_conv2d", &target, &key, out, &config);
    }
}
