use super::*;
use crate::space::{Space, Split};

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
