//! `simt_planes` and `mma_planes`, in the interpreter: what random workloads rarely meet.

use crate::checked;
use kernel_gen::templates::cuda::mma::MmaPlanes;
use kernel_gen::templates::cuda::simt::SimtPlanes;
use kernel_gen::workload::Workload;

const SIMT: &str = "tile_m=32 tile_n=32 tile_k=8 own_m=4 own_n=4 stages=2 group=1";
const MMA: &str = "tile_m=32 tile_n=32 tile_k=16 warps_m=2 warps_n=1 stages=3 group=1 store=direct";

fn workload(key: &str) -> Workload {
    Workload::from_key(key).expect("a key")
}

/// Taps of a row of pixels alternate in the output, so a thread stores vectors of them; parts of sums are stored one by one.
#[test]
fn taps_that_alternate_are_stored_as_vectors() {
    for taps in [2, 4] {
        let kernel = format!("k2x{taps}-s2x{taps}-p0.0.0.0-d1x1-e0x0-g1-bias.residual_add.relu");
        let w = workload(&format!("conv_transpose2d-f32-strict-n2c20o5-3x4-{kernel}"));
        let text = checked::check(&SimtPlanes, &w, "sm_90a", &format!("{SIMT} split=1"));
        assert!(text.contains("(float4 *)(y"), "{text}");
        checked::check(&SimtPlanes, &w, "sm_90a", &format!("{SIMT} split=2"));
    }
    // What padding cuts off, and rows of three pixels, are not vectors.
    for pixels in ["3x4-k2x2-s2x2-p0.1.0.0", "4x3-k2x2-s2x2-p0.0.0.0"] {
        let w = workload(&format!("conv_transpose2d-f32-strict-n2c20o5-{pixels}-d1x1-e0x0-g1"));
        let text = checked::check(&SimtPlanes, &w, "sm_90a", &format!("{SIMT} split=1"));
        assert!(!text.contains("(float4 *)(y"), "{text}");
    }
}

/// Pixels of two bytes go through registers; phases with one tap end before those with four, also within a part of the reduction.
#[test]
fn phases_of_different_lengths_share_a_reduction() {
    let w = workload("conv_transpose2d-f16-n2c40o24-5x3-k3x3-s2x2-p1.1.1.1-d1x1-e1x1-g1-bias");
    for split in ["split=2 reduce=launch", "split=2 reduce=cluster"] {
        checked::check(&MmaPlanes, &w, "sm_90a", &format!("{MMA} {split}"));
    }
}
