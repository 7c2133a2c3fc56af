//! The specs of known networks hold what the networks compute: as many multiply-adds and parameters as were published,
//! each workload counted as often as the network runs it.

use kernel_gen::spec::{Spec, WorkloadSpec};
use kernel_gen::workload::{ConvLayout, Op, Role, Workload};
use std::path::Path;

fn load(name: &str) -> Spec {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs").join(name);
    Spec::load(&path).unwrap_or_else(|faults| panic!("{}", faults[0]))
}

/// What is known of a network.
struct Network {
    spec: &'static str,
    /// Distinct workloads, and convolutions and products in all.
    workloads: [usize; 2],
    /// Multiply-adds, and where that number stands.
    macs: [i64; 2],
    /// Parameters as published.
    parameters: i64,
    /// Parameters of batch normalisations that folding removes: of two a channel, one becomes the bias.
    folded: i64,
}

/// Sources: the papers' tables where they give a number of multiply-adds (or "FLOPs", by which they mean the same), and
/// torchvision's model pages, which give more digits and the number of parameters.
const NETWORKS: [Network; 6] = [
    // He et al., table 1: 1.8 x 10^9. torchvision: 1.81 G, 11,689,512 parameters.
    Network {
        spec: "resnet18",
        workloads: [16, 21],
        macs: [1_810_000_000, 1_820_000_000],
        parameters: 11_689_512,
        folded: 4_800,
    },
    // torchvision, whose blocks stride in the 3 x 3: 4.09 G, 25,557,032 parameters. He et al. stride in the 1 x 1 before it
    // and have 3.8 x 10^9.
    Network {
        spec: "resnet50",
        workloads: [25, 54],
        macs: [4_085_000_000, 4_095_000_000],
        parameters: 25_557_032,
        folded: 26_560,
    },
    // Howard et al., table 8: 569 M; 4.2 M parameters, of which the Keras release counts 4,231,976 that are trained.
    Network {
        spec: "mobilenet_v1",
        workloads: [20, 28],
        macs: [568_000_000, 570_000_000],
        parameters: 4_231_976,
        folded: 10_944,
    },
    // torchvision: 15.47 G, 138,357,544 parameters; Simonyan and Zisserman, table 2: 138 M.
    Network {
        spec: "vgg16",
        workloads: [12, 16],
        macs: [15_465_000_000, 15_475_000_000],
        parameters: 138_357_544,
        folded: 0,
    },
    // torchvision: 0.35 G, 1,235,496 parameters. The authors' page says 0.72 GFLOPs, two a multiply-add, for 227 x 227.
    Network {
        spec: "squeezenet",
        workloads: [18, 26],
        macs: [345_000_000, 355_000_000],
        parameters: 1_235_496,
        folded: 0,
    },
    // torchvision: 5.71 G; 23,834,568 parameters without the auxiliary classifier. Szegedy et al. say "5 billion".
    Network {
        spec: "inception_v3",
        workloads: [44, 95],
        macs: [5_705_000_000, 5_715_000_000],
        parameters: 23_834_568,
        folded: 17_216,
    },
];

/// The sum over all workloads, each as often as the network runs it.
fn total(spec: &Spec, of: impl Fn(&WorkloadSpec) -> i64) -> i64 {
    spec.workloads().map(|(_, w)| of(w) * i64::from(w.count)).sum()
}

#[test]
fn networks_have_the_published_amount_of_work_and_parameters() {
    for network in NETWORKS {
        for name in [format!("{}.toml", network.spec), format!("{}_f16.toml", network.spec)] {
            let spec = load(&name);
            assert!(spec.workloads().all(|(_, w)| w.name.is_some()), "{name}: layers are called by name");
            let macs = total(&spec, |w| w.workload.macs());
            assert!((network.macs[0]..network.macs[1]).contains(&macs), "{name}: {macs} multiply-adds");
            let parameters = total(&spec, |w| {
                let params = w.workload.params();
                let learned = params.iter().filter(|p| matches!(p.role, Role::Weight | Role::Bias));
                learned.map(|p| p.elements()).sum()
            });
            assert_eq!(parameters, network.parameters - network.folded, "{name}: parameters");
            let workloads = [spec.workloads().count(), total(&spec, |_| 1) as usize];
            assert_eq!(workloads, network.workloads, "{name}");
            assert!(spec.targets.cuda.iter().any(|t| t.name == "sm_90a"), "{name} is made for GPUs too");
        }
    }
}

/// The pairs of MobileNet are its layers, two by two and as often.
#[test]
fn the_fused_mobilenet_is_the_same_network() {
    let (fused, apart) = (load("mobilenet_v1_fused.toml"), load("mobilenet_v1.toml"));
    let count = |w: &Workload| apart.workloads().filter(|(_, a)| a.workload == *w).map(|(_, a)| a.count).sum::<u32>();
    let mut depthwise = 0;
    for (_, pair) in fused.workloads() {
        let [first, second] = pair.workload.parts().expect("a pair");
        assert_eq!(count(&first), pair.count, "{}", first.key());
        assert_eq!(count(&second), pair.count, "{}", second.key());
        depthwise += pair.count;
    }
    assert_eq!(depthwise, 13);
}

/// Both specs of a network list the same layers; one of them in f16 with channels last.
#[test]
fn the_half_precision_networks_are_the_same_networks() {
    for network in NETWORKS {
        let (single, half) = (load(&format!("{}.toml", network.spec)), load(&format!("{}_f16.toml", network.spec)));
        for ((_, s), (_, h)) in single.workloads().zip(half.workloads()) {
            assert_eq!((&s.name, s.count), (&h.name, h.count));
            let mut expected = s.workload.clone();
            if let Op::Conv2d(c) = &mut expected.op {
                c.layout = ConvLayout::Nhwc;
            }
            expected.dtype = kernel_gen::ir::DType::F16;
            expected.out_dtype = kernel_gen::ir::DType::F16;
            assert_eq!(expected, h.workload, "{} of {}", s.name.as_deref().unwrap_or_default(), network.spec);
        }
    }
}

#[test]
fn the_products_parse() {
    let spec = load("matmul.toml");
    let scores = spec.find("scores").expect("declared");
    assert!(matches!(scores.op, Op::Matmul(m) if m.batch == 12 && m.trans_b && m.k == 64 && m.n == 128));
    assert_eq!(scores.key(), "batch_matmul-f32-b12m128n128k64-nt");
}

/// What `kernel-gen spec` writes.
#[cfg(feature = "cli")]
fn written(words: &[&str]) -> kernel_gen::cli::Output {
    let registry = kernel_gen::templates::Registry::builtin();
    kernel_gen::cli::run(&registry, [&["kernel-gen", "spec"], words].concat())
}

/// Names, keys and counts of a spec's workloads, by key.
#[cfg(feature = "cli")]
fn listed(spec: &Spec) -> std::collections::BTreeMap<String, (Option<String>, u32)> {
    spec.workloads().map(|(_, w)| (w.workload.key(), (w.name.clone(), w.count))).collect()
}

#[cfg(feature = "cli")]
#[test]
fn the_command_writes_the_specs_that_are_checked_in() {
    let names = ["resnet-18", "resnet-50", "mobilenet", "vgg-16", "squeezenet", "inception_v3"];
    for (network, name) in NETWORKS.iter().zip(names) {
        for (file, words) in [
            (format!("{}.toml", network.spec), vec![name]),
            (format!("{}_f16.toml", network.spec), vec![name, "--layout", "NHWC", "--dtype", "f16"]),
        ] {
            let text = written(&words).text;
            let spec = Spec::parse(&text, "written.toml").unwrap_or_else(|faults| panic!("{file}: {}", faults[0]));
            let kept = load(&file);
            // Records are found by keys; names are for people, and the same.
            assert_eq!(listed(&spec), listed(&kept), "{file}");
            let targets = |s: &Spec| s.targets.cuda.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
            assert_eq!(targets(&spec), targets(&kept), "{file}");
        }
    }
}

#[cfg(feature = "cli")]
#[test]
fn the_command_knows_the_other_sizes_of_the_networks() {
    // Multiply-adds as torchvision's model pages give them, in millions.
    for (name, mega) in [
        ("resnet-34", 3_664),
        ("resnet-101", 7_801),
        ("resnet-152", 11_514),
        ("vgg-11", 7_609),
        ("vgg-13", 11_308),
        ("vgg-19", 19_632),
    ] {
        let spec = Spec::parse(&written(&[name]).text, "written.toml").unwrap_or_else(|faults| panic!("{}", faults[0]));
        let macs = total(&spec, |w| w.workload.macs()) / 1_000_000;
        assert!((macs - mega).abs() <= 20, "{name}: {macs} million multiply-adds");
        let eight = Spec::parse(&written(&[name, "--batch", "8", "--layout", "nhwc"]).text, "written.toml").unwrap();
        assert_eq!(total(&eight, |w| w.workload.macs()) / 1_000_000 / 8, macs, "{name}");
    }
}

#[cfg(feature = "cli")]
#[test]
fn a_network_that_is_not_known_and_a_file_that_is_there_are_named() {
    let error = |words: &[&str]| written(words).errors.join("\n");
    let all = "the networks are resnet-18, resnet-34, resnet-50, resnet-101, resnet-152, vgg-11, vgg-13, vgg-16, vgg-19, mobilenet, \
               squeezenet, inception_v3";
    // Another number is another network.
    assert_eq!(error(&["resnet-19"]), format!("error: there is no network `resnet-19`; {all}"));
    assert_eq!(error(&["resnt-18"]), format!("error: there is no network `resnt-18`; did you mean `resnet-18`? {all}"));
    let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").display().to_string();
    assert!(error(&["vgg-11", "-o", &there]).ends_with("there is such a file already; delete it, or name another one"));
    assert!(error(&["vgg-11", "-o", "/no/such/folder/a.toml"]).contains("cannot be written"));
    assert!(error(&["vgg-11", "--batch", "0"]).contains("0 is not in 1..=65536"));
    assert!(error(&["vgg-11", "--dtype", "int8"]).contains("possible values: f32, f16, bf16"));
}
