//! What the lanes of a warp tell each other from register to register, in one table.
//!
//! An entry is all there is to such an instruction: verifier, interpreter, text form and emitter read it. Each lane has one value
//! and receives one.

/// An instruction of a whole warp on one `f32` of each lane.
#[derive(Debug)]
pub struct LaneOp {
    /// Its word in the text form.
    pub name: &'static str,
    /// What each lane receives of the values of all lanes.
    pub meaning: fn(&[f64; 32], usize) -> f64,
    /// PTX with `%0` for what is received and `%1` for what is given.
    pub ptx: &'static str,
}

impl PartialEq for LaneOp {
    fn eq(&self, other: &LaneOp) -> bool {
        self.name == other.name
    }
}

/// The value of the lane whose number differs in the bits of `mask`. *(PTX ISA, "shfl.sync".)*
macro_rules! shuffle_xor {
    ($name:literal, $mask:literal) => {
        LaneOp {
            name: $name,
            meaning: |values, lane| values[lane ^ $mask],
            ptx: concat!("shfl.sync.bfly.b32 %0, %1, ", stringify!($mask), ", 31, -1;"),
        }
    };
}

impl LaneOp {
    /// All of them.
    pub const ALL: &[LaneOp] = &[
        shuffle_xor!("shuffle_xor_1", 1),
        shuffle_xor!("shuffle_xor_2", 2),
        shuffle_xor!("shuffle_xor_4", 4),
        shuffle_xor!("shuffle_xor_8", 8),
        shuffle_xor!("shuffle_xor_16", 16),
        // The value of lane 0. *(PTX ISA, "shfl.sync".)*
        LaneOp { name: "broadcast", meaning: |values, _| values[0], ptx: "shfl.sync.idx.b32 %0, %1, 0, 31, -1;" },
    ];

    /// The instruction of that name.
    pub fn find(name: &str) -> Option<&'static LaneOp> {
        LaneOp::ALL.iter().find(|op| op.name == name)
    }
}
