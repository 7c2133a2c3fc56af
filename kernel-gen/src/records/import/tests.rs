use super::*;
use crate::space::{Space, Split};
use crate::workload::{Conv2d, Workload};

/// A line of the tutorial's log.
fn tutorial(index: u64, entities: &str, result: &str) -> String {
    format!(
        "{{\"input\": [\"cuda\", \"tutorial/conv2d_no_batching\", [1, 7, 7, 512, 512, 3, 3, [1, 1], [1, 1]], {{}}], \
         \"config\": {{\"index\": {index}, \"code_hash\": null, \"entity\": [{entities}]}}, \
         \"result\": {result}, \"version\": 0.2, \"tvm_version\": \"0.8.dev0\"}}\n"
    )
}

/// The tutorial's trials 1 and 20.
fn best() -> String {
    let entities = "[\"tile_f\", \"sp\", [-1, 2, 64, 1]], [\"tile_y\", \"sp\", [-1, 1, 1, 7]], \
                    [\"tile_x\", \"sp\", [-1, 1, 7, 1]], [\"tile_rc\", \"sp\", [-1, 2, 2]], \
                    [\"tile_ry\", \"sp\", [-1, 3, 1]], [\"tile_rx\", \"sp\", [-1, 1, 3]], \
                    [\"auto_unroll_max_step\", \"ot\", 1500], [\"unroll_explicit\", \"ot\", 0]";
    tutorial(4881186, entities, "[[0.0007478322784810127], 0, 1.6631748676300049, 1605451988.403362]")
}

fn last() -> String {
    let entities = "[\"tile_f\", \"sp\", [-1, 4, 8, 8]], [\"tile_y\", \"sp\", [-1, 7, 1, 1]], \
                    [\"tile_x\", \"sp\", [-1, 7, 1, 1]], [\"tile_rc\", \"sp\", [-1, 64, 8]], \
                    [\"tile_ry\", \"sp\", [-1, 1, 1]], [\"tile_rx\", \"sp\", [-1, 3, 1]], \
                    [\"auto_unroll_max_step\", \"ot\", 512], [\"unroll_explicit\", \"ot\", 0]";
    tutorial(2440616, entities, "[[1000000000.0], 1, 0.09808516502380371, 1605452005.6743052]")
}

/// The tutorial's space without what a device refuses.
fn whole_space() -> Space {
    Space::builder()
        .split("tile_f", Split::factors(512, 4))
        .split("tile_y", Split::factors(7, 4))
        .split("tile_x", Split::factors(7, 4))
        .split("tile_rc", Split::factors(512, 3))
        .split("tile_ry", Split::factors(3, 3))
        .split("tile_rx", Split::factors(3, 3))
        .knob("auto_unroll_max_step", [0, 512, 1500])
        .knob("unroll_explicit", [0, 1])
        .build()
        .unwrap()
}

fn import(text: &str, options: ImportOptions<'_>) -> Imported {
    import_autotvm(text.as_bytes(), "conv2d.log", &Registry::builtin(), &options)
}

fn hopper() -> ImportOptions<'static> {
    ImportOptions { target: Target::find("sm_90a"), exchange_ry_rx: false }
}

#[test]
fn the_tutorials_lines_are_the_configs_at_their_indices() {
    for (text, index) in [(best(), 4881186), (last(), 2440616)] {
        let line = Line::parse(text.trim()).unwrap();
        assert_eq!((line.index, whole_space().index_of(&line.config)), (Some(index), Ok(index)));
        assert_eq!(whole_space().get(index).unwrap(), line.config);
        assert_eq!(line.workload.key(), "conv2d-nchw-f32-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1");
    }
    let all = import(&(best() + &last()), hopper());
    assert_eq!((all.seeds.len(), all.failed, all.renumbered, all.tutorial), (1, 1, 0, 1));
    assert_eq!(all.refused, []);
    let seed = &all.seeds[0];
    assert_eq!((seed.index, seed.task.template.as_str(), seed.place.line), (4881186, "conv2d_no_batching", 1));
    assert_eq!(
        seed.config.to_string(),
        "tile_f=[-1,2,64,1] tile_y=[-1,1,1,7] tile_x=[-1,1,7,1] tile_rc=[-1,2,2] tile_ry=[-1,3,1] tile_rx=[-1,1,3] \
         auto_unroll_max_step=1500 unroll_explicit=0"
    );
    assert!((seed.reported_us.unwrap() - 747.832).abs() < 0.001);
    assert_eq!(seed.source, "AutoTVM, tutorial/conv2d_no_batching, cuda");
}

#[test]
fn a_mark_of_the_encoding_costs_no_line() {
    let all = import(&format!("\u{feff}{}", best()), hopper());
    assert_eq!((all.seeds.len(), all.refused.len()), (1, 0));
}

#[test]
fn lines_of_pickles_are_refused_as_what_they_are() {
    let line = "cuda\tgANYBgAAAGNvbnYyZHEAhXEBLg==\tgANjdHZtLmF1dG90dm0KcQAu\tgANjdHZtLm1lYXN1cmUKcQAu\n";
    let all = import(line, hopper());
    assert_eq!(
        all.refused[0].to_string(),
        "conv2d.log:1: the line is of AutoTVM's pickle format, which is not read: it holds Python objects, and reading them \
         runs code; read it with the TVM that wrote it and write it as JSON (format 0.2), or tune here"
    );
    // Other lines with tabs are no JSON, as before.
    assert!(import("a\tb\tc\td", hopper()).refused[0].to_string().contains("not complete JSON"));
}

#[test]
fn the_tutorials_exchanged_knobs_can_be_put_right() {
    let all = import(&best(), ImportOptions { exchange_ry_rx: true, ..hopper() });
    let config = &all.seeds[0].config;
    assert_eq!(
        (config.split("tile_ry").unwrap(), config.split("tile_rx").unwrap()),
        (&[-1, 1, 3][..], &[-1, 3, 1][..])
    );
}

#[test]
fn entities_count_and_indices_do_not() {
    let all = import(&best().replace("4881186", "7"), hopper());
    assert_eq!((all.seeds[0].index, all.renumbered), (4881186, 1));
    // The first size of a split may be written out; it must be the right one.
    let all = import(&best().replace("[-1, 2, 64, 1]", "[4, 2, 64, 1]"), hopper());
    assert_eq!((all.seeds.len(), all.seeds[0].index), (1, 4881186));
    let all = import(&best().replace("[-1, 2, 64, 1]", "[5, 2, 64, 1]"), hopper());
    let message = all.refused[0].to_string();
    assert!(
        message.starts_with("conv2d.log:1: the line is not taken: the knob `tile_f` cannot be [5,2,64,1]"),
        "{message}"
    );
}

/// A line in the manner of TopHub's, whose knobs have another order and reductions in two parts.
const TOPHUB: &str = "{\"input\": [\"cuda -model=titanx\", \"conv2d_nchw.cuda\", [[\"TENSOR\", [1, 2048, 8, 8], \"float32\"], \
     [\"TENSOR\", [448, 2048, 1, 1], \"float32\"], [1, 1], [0, 0, 0, 0], [1, 1], \"float32\"], {}], \"config\": {\"index\": \
     734204, \"code_hash\": null, \"entity\": [[\"tile_f\", \"sp\", [28, 2, 8, 1]], [\"tile_y\", \"sp\", [2, 2, 2, 1]], \
     [\"tile_x\", \"sp\", [1, 1, 8, 1]], [\"tile_rc\", \"sp\", [64, 32]], [\"tile_rx\", \"sp\", [1, 1]], [\"tile_ry\", \
     \"sp\", [1, 1]], [\"auto_unroll_max_step\", \"ot\", 0], [\"unroll_explicit\", \"ot\", 0]]}, \"result\": \
     [[9.882545781556573e-05], 0, 20.854647159576416, 1535425623.6315196], \"version\": 0.2, \"tvm_version\": \"0.7.dev0\"}";

#[test]
fn lines_of_tophub_become_configs_of_the_template_with_the_same_knobs() {
    let all = import(&format!("# TopHub\n\n{TOPHUB}"), hopper());
    assert_eq!((all.refused.as_slice(), all.renumbered, all.tutorial), (&[][..], 0, 0));
    let seed = &all.seeds[0];
    assert_eq!(seed.task.workload, "conv2d-nchw-f32-n1c2048h8w8-o448k1x1-s1x1-p0.0.0.0-d1x1-g1");
    assert_eq!(
        seed.config.to_string(),
        "tile_f=[-1,2,8,1] tile_y=[-1,2,2,1] tile_x=[-1,1,8,1] tile_rc=[-1,32,1] tile_ry=[-1,1,1] tile_rx=[-1,1,1] \
         auto_unroll_max_step=0 unroll_explicit=0"
    );
    assert_eq!(seed.place.line, 3);
    // Half precision, other paddings and strides.
    let half = TOPHUB
        .replace("float32", "float16")
        .replace("[0, 0, 0, 0]", "[1, 2]")
        .replace("[1, 1], \"float16\"", "2, \"float16\"");
    let line = Line::parse(&half).unwrap();
    assert_eq!(line.workload.key(), "conv2d-nchw-f16-n1c2048h8w8-o448k1x1-s1x1-p1.2.1.2-d2x2-g1");
}

#[test]
fn the_architecture_is_the_callers_or_the_lines() {
    let none = ImportOptions::default();
    assert!(import(TOPHUB, none).refused[0].to_string().ends_with("; name it with --target"));
    let named = TOPHUB.replace("-model=titanx", "-model=unknown -arch=sm_80");
    assert_eq!(import(&named, none).seeds[0].task.target, "sm_80");
    let unknown = TOPHUB.replace("-model=titanx", "-arch=sm_35");
    assert!(import(&unknown, none).refused[0].to_string().contains("the target `sm_35` is not known here"));
    let cpu = ImportOptions { target: Target::find("x86-64-v3"), ..none };
    let message = import(TOPHUB, cpu).refused[0].to_string();
    assert!(message.contains("its template `conv2d_no_batching` does not apply here; those that do: "), "{message}");
}

/// A line of one of TOPI's tasks, as `record.encode` writes it: arguments, entities, and a time of 0.1 ms.
fn topi(task: &str, args: &str, entities: &[(&str, &str)]) -> String {
    let entities: Vec<String> = entities
        .iter()
        .map(|(knob, value)| {
            let tag = if value.starts_with('[') { "sp" } else { "ot" };
            format!("[\"{knob}\", \"{tag}\", {value}]")
        })
        .collect();
    format!(
        "{{\"input\": [\"cuda -keys=cuda,gpu -max_num_threads=1024 -model=v100 -thread_warp_size=32\", \"{task}\", [{args}], {{}}], \
         \"config\": {{\"index\": 7, \"code_hash\": null, \"entity\": [{}]}}, \
         \"result\": [[0.0001, 0.0001], 0, 2.5, 1640000000.0], \"version\": 0.2, \"tvm_version\": \"0.12.0\"}}\n",
        entities.join(", ")
    )
}

/// The only seed of a line: its template, workload and config.
fn seed(line: &str) -> [String; 3] {
    let all = import(line, hopper());
    assert_eq!((all.refused.as_slice(), all.seeds.len()), (&[][..], 1), "{line}");
    let seed = &all.seeds[0];
    assert!((seed.reported_us.unwrap() - 100.0).abs() < 1e-6);
    [seed.task.template.clone(), seed.task.workload.clone(), seed.config.to_string()]
}

/// Why a line is not taken.
fn reason(line: &str) -> String {
    let all = import(line, hopper());
    assert_eq!((all.seeds.len(), all.refused.len()), (0, 1), "{line}");
    all.refused[0].to_string()
}

const HWCN: &str = "[\"TENSOR\", [14, 14, 256, 256], \"float32\"], [\"TENSOR\", [3, 3, 256, 512], \"float32\"], [1, 1], [1, 1, 1, 1], \
                    [1, 1], \"float32\"";

#[test]
fn hwcn_takes_the_splits_of_channels_and_images() {
    // What TOPI falls back to is the schedule of "How to optimize convolution on GPU".
    let line = topi("conv2d_hwcn.cuda", HWCN, &[("tile_fi", "[-1, 2, 8, 4]"), ("tile_ni", "[-1, 2, 8, 4]")]);
    let [template, workload, config] = seed(&line);
    assert_eq!(template, "conv2d_hwcn");
    assert_eq!(workload, "conv2d-hwcn-f32-n256c256h14w14-o512k3x3-s1x1-p1.1.1.1-d1x1-g1");
    assert_eq!(config, crate::templates::cuda::conv2d_hwcn::tutorial().to_string());
    let line = topi("conv2d_hwcn.cuda", HWCN, &[("tile_fi", "[-1, 4, 8, 4]"), ("tile_ni", "[-1, 2, 8, 4]")]);
    assert_eq!(
        reason(&line),
        "conv2d.log:1: the task `conv2d_hwcn.cuda` is not taken: it has 4 virtual threads along o and 2 along n, and `vthread` is \
         for both; nearest here is `conv2d_hwcn` with block_o=128 block_n=64 threads_o=8 threads_n=8 vthread=2 step=8 vector=4 \
         fetch=axes; tune the workload here, or delete the line"
    );
    // A block that the template does not offer, and a split in three.
    let line = topi("conv2d_hwcn.cuda", HWCN, &[("tile_fi", "[-1, 1, 2, 4]"), ("tile_ni", "[-1, 1, 8, 4]")]);
    assert!(reason(&line).contains("block_o"), "{}", reason(&line));
    let line = topi("conv2d_hwcn.cuda", HWCN, &[("tile_fi", "[-1, 8, 4]"), ("tile_ni", "[-1, 2, 8, 4]")]);
    assert!(reason(&line).contains("knob `tile_fi` has 3 sizes and not 4"), "{}", reason(&line));
}

#[test]
fn depthwise_takes_the_splits_of_rows_and_columns() {
    let args = "[\"TENSOR\", [1, 256, 96, 96], \"float32\"], [\"TENSOR\", [256, 1, 3, 3], \"float32\"], [1, 1], [1, 1, 1, 1], [1, 1], \
                \"float32\"";
    let line = |tile_f: &str| {
        let tiles = [("tile_f", tile_f), ("tile_y", "[-1, 2, 8, 2]"), ("tile_x", "[-1, 2, 8, 2]")];
        let unroll = [("auto_unroll_max_step", "256"), ("unroll_explicit", "0")];
        topi("depthwise_conv2d_nchw.cuda", args, &[&tiles[..], &unroll].concat())
    };
    let [template, workload, config] = seed(&line("[-1, 1, 1, 1]"));
    assert_eq!(template, "depthwise_cuda");
    assert_eq!(workload, Workload::f32(Conv2d::nchw(1, 256, 96, 96, 256, 3, 1, 1).depthwise(1)).key());
    // The article's.
    assert_eq!(config, crate::templates::cuda::depthwise::article().to_string());
    let message = reason(&line("[-1, 1, 4, 2]"));
    assert!(
        message.contains("its blocks have 8 channels, and here one; nearest here is `depthwise_cuda` with block_h=32"),
        "{message}"
    );
    // Two outputs of a channel.
    let twice = line("[-1, 1, 1, 1]").replace("[256, 1, 3, 3]", "[256, 2, 3, 3]");
    assert!(seed(&twice)[1].contains("-o512k3x3-"), "{twice}");
}

#[test]
fn products_take_tiles_and_the_terms_of_a_step() {
    let args = "[\"TENSOR\", [128, 1024], \"float32\"], [\"TENSOR\", [512, 1024], \"float32\"], null, \"float32\"";
    let line = |task: &str, tile_k: &str| {
        topi(task, args, &[("tile_x", "[-1, 2, 16, 2]"), ("tile_y", "[-1, 2, 8, 4]"), ("tile_k", tile_k)])
    };
    for task in ["dense_large_batch.gpu", "dense_large_batch.cuda"] {
        let [template, workload, config] = seed(&line(task, "[-1, 8, 1]"));
        assert_eq!([template.as_str(), workload.as_str()], ["matmul_blocked", "matmul-f32-m128n512k1024-nt"]);
        assert_eq!(config, "block_m=64 block_n=64 threads_m=16 threads_n=8 vthread=2 step=8 vector=1");
    }
    let message = reason(&line("dense_large_batch.gpu", "[-1, 4, 2]"));
    assert!(
        message.contains("registers hold 2 terms of both factors at once, and here one; nearest here is"),
        "{message}"
    );
    let with_bias = line("dense_large_batch.gpu", "[-1, 8, 1]")
        .replace("null, \"float32\"]", "[\"TENSOR\", [512], \"float32\"], null]");
    assert_eq!(seed(&with_bias)[1], "matmul-f32-m128n512k1024-nt-bias");

    let tiles =
        [("tile_y", "[-1, 8, 8]"), ("tile_x", "[-1, 8, 4]"), ("tile_k", "[-1, 16]"), ("auto_unroll_max_step", "16")];
    let tensors = "[\"TENSOR\", [12, 128, 64], \"float32\"], [\"TENSOR\", [12, 96, 64], \"float32\"]";
    for rest in ["", ", [12, 128, 96], \"float32\"", ", [12, 128, 96], \"float32\", false, true"] {
        let [template, workload, config] = seed(&topi("batch_matmul.cuda", &format!("{tensors}{rest}"), &tiles));
        assert_eq!([template.as_str(), workload.as_str()], ["matmul_blocked", "batch_matmul-f32-b12m128n96k64-nt"]);
        assert_eq!(config, "block_m=64 block_n=32 threads_m=8 threads_n=8 vthread=1 step=16 vector=1");
    }
    let message = reason(&topi("batch_matmul.cuda", &format!("{tensors}, null, null, false, false"), &tiles));
    assert!(message.contains("a left factor of 64 columns and a right one of 96 rows"), "{message}");
}

#[test]
fn the_notes_products_are_the_configs_at_their_indices() {
    let line = |task: &str, index: u64, [y, x]: [&str; 2]| {
        topi(task, "512, 512, 512, \"float32\"", &[("tile_y", y), ("tile_x", x)])
            .replace("\"index\": 7", &format!("\"index\": {index}"))
    };
    // Trials of a log of `matmul_v1`, in the order of a grid search.
    for (index, tile) in [(0, ["1", "1"]), (1, ["2", "1"]), (9, ["16", "2"]), (24, ["16", "16"])] {
        for task in ["matmul_v1", "tutorial/matmul_v1"] {
            let all = import(&line(task, index, tile), hopper());
            assert_eq!((all.refused.as_slice(), all.renumbered, all.tutorial), (&[][..], 0, 0));
            assert_eq!((all.seeds[0].index, all.seeds[0].task.template.as_str()), (index, "matmul_v1"));
        }
    }
    let all = import(&line("tutorial/matmul", 44, ["[-1, 16]", "[-1, 16]"]), hopper());
    assert_eq!((all.seeds[0].index, all.seeds[0].task.template.as_str(), all.renumbered), (44, "matmul_split", 0));
    let other = import(&line("tutorial/matmul", 45, ["[-1, 16]", "[-1, 16]"]), hopper());
    assert_eq!((other.seeds[0].index, other.renumbered), (44, 1));
    // Lines for a CPU need a template for one, as the tutorial's own is.
    let cpu = ImportOptions { target: Target::find("x86-64-v3"), ..ImportOptions::default() };
    let message = import(&line("matmul_v1", 0, ["1", "1"]), cpu).refused[0].to_string();
    assert!(
        message.contains("its template `matmul_v1` does not apply here; those that do: matmul_packed"),
        "{message}"
    );
}

#[test]
fn tasks_without_a_namesake_are_answered_with_the_nearest_template() {
    for (tasks, template, why) in &tasks::NEAREST {
        assert!(Registry::builtin().find(template).is_some(), "{template} is not registered");
        for task in *tasks {
            assert!(tasks::find(task).is_none(), "{task} has a namesake");
            let line = topi(task, HWCN, &[("tile_b", "[-1, 1, 1, 1]")]);
            let expected = format!(
                "conv2d.log:1: the task `{task}` is not taken: {why}; nearest here is the template `{template}`; tune the workload \
                 here, or delete the line"
            );
            assert_eq!(reason(&line), expected);
        }
    }
    let message = reason(&topi("dense_cublas.cuda", "", &[]));
    assert!(message.contains("the task `dense_cublas.cuda` is not taken: cublas computes it"), "{message}");
    let message = reason(&topi("roi_align.cuda", "", &[]));
    assert!(message.contains("no template here has the knobs of the task `roi_align.cuda`"), "{message}");
}

#[test]
fn a_config_that_failed_there_counts_whatever_its_knobs() {
    let line = topi("conv2d_hwcn.cuda", HWCN, &[("tile_fi", "[-1, 4, 8, 4]"), ("tile_ni", "[-1, 2, 8, 4]")]);
    let all = import(&line.replace("[[0.0001, 0.0001], 0,", "[[1000000000.0], 4,"), hopper());
    assert_eq!((all.seeds.len(), all.refused.len(), all.failed), (0, 0, 1));
}

#[test]
fn seeds_of_every_task_come_back_from_a_log() {
    let product = "[\"TENSOR\", [128, 64], \"float32\"], [\"TENSOR\", [128, 64], \"float32\"], null, \"float32\"";
    let lines = best()
        + TOPHUB
        + "\n"
        + &topi("conv2d_hwcn.cuda", HWCN, &[("tile_fi", "[-1, 2, 8, 4]"), ("tile_ni", "[-1, 2, 8, 4]")])
        + &topi("matmul_v1", "64, 64, 64, \"float32\"", &[("tile_y", "8"), ("tile_x", "4")])
        + &topi(
            "dense_large_batch.gpu",
            product,
            &[("tile_x", "[-1, 2, 8, 2]"), ("tile_y", "[-1, 2, 8, 2]"), ("tile_k", "[-1, 8, 1]")],
        );
    let all = import(&lines, hopper());
    assert_eq!((all.seeds.len(), all.refused.len()), (5, 0));
    let path = std::env::temp_dir().join(format!("kernel-gen-seeds-{}.jsonl", std::process::id()));
    super::super::log::append_seeds(&path, &all.seeds).unwrap();
    let read = super::super::log::Log::read(&[&path]);
    std::fs::remove_file(&path).unwrap();
    let read = read.unwrap();
    let names = |seeds: &[Seed]| -> Vec<_> {
        seeds.iter().map(|s| (s.task.clone(), s.index, s.config.to_string(), s.source.clone(), s.reported_us)).collect()
    };
    assert_eq!(names(&read.seeds), names(&all.seeds));
    assert_eq!(read.skipped, []);
}
