//! The precision class of the arithmetic.

/// The precision class of the arithmetic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Math {
    /// `f32` multiply-adds; the error is no worse than that of a sequential `f32` sum of the same products.
    Strict,
    /// Any method that sums the products of an output alone, each computed to within eight times the error of [`Math::Strict`].
    Local,
    /// Any method whose measured error stays within eight times that of [`Math::Strict`] where operands are finite and of
    /// one magnitude. Winograd's is one: its error is relative to the largest operand of a tile.
    #[default]
    Fp32,
    /// Inputs rounded to tf32 (10 fraction bits), products summed in `f32`.
    Tf32,
}

impl Math {
    /// All of them.
    pub const ALL: [Math; 4] = [Math::Strict, Math::Local, Math::Fp32, Math::Tf32];

    /// The name in specs and keys.
    pub fn name(self) -> &'static str {
        match self {
            Math::Strict => "strict",
            Math::Local => "local",
            Math::Fp32 => "fp32",
            Math::Tf32 => "tf32",
        }
    }

    /// Whether an output may depend on its own operands alone, and so its error: what other outputs read cannot spoil it.
    pub fn is_local(self) -> bool {
        matches!(self, Math::Strict | Math::Local)
    }

    /// The class with that name.
    pub fn from_name(name: &str) -> Option<Math> {
        Math::ALL.into_iter().find(|m| m.name() == name)
    }
}
