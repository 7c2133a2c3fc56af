//! What a level multiplies at a time, and how much of it fits its registers.

use super::problem::Words;
use crate::ir::DType;
use crate::target::Cpu;
use crate::templates::cpu::tile::RegisterTile;

/// Tasks that a default has, if there are enough tiles.
pub(super) const WANTED_TASKS: i64 = 16;

/// What is multiplied at a time. Instructions of x86 take inputs without signs, the first ones of Arm inputs with signs, as weights have
/// them, and later ones both.
pub(super) fn words(dtype: DType, cpu: &Cpu) -> Words {
    let has = |feature: &str| cpu.features.iter().any(|f| f == feature);
    match has("avx512vnni") || has("avxvnni") {
        true => Words::Bytes(DType::U8),
        false if has("i8mm") => Words::Bytes(dtype),
        false if has("dotprod") => Words::Bytes(DType::I8),
        false => Words::Pairs,
    }
}

/// Whether sums and operands fit the registers: the weights, a pixel, and, where products and sums are two instructions, a product.
pub(super) fn fits(tile: RegisterTile, words: Words, cpu: &Cpu) -> bool {
    let beside = if words == Words::Pairs { 2 } else { 1 };
    tile.rows * tile.vectors + tile.vectors + beside <= cpu.vector_registers
}
