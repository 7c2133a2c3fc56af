//! The printer, and what a language of the family says in its own way.

use super::names::Names;
use super::prelude::{Common, Helper, Prelude};
use super::text::Text;
use crate::analysis::range::Ranges;
use crate::emit::EmitError;
use crate::ir::{BufferId, DType, Expr, For, Kernel, Stmt, VarId};
use std::collections::BTreeSet;

/// Prints the body of one function.
pub(crate) struct Printer<'a, D: Dialect> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) names: &'a mut Names,
    pub(crate) prelude: &'a mut Prelude<D::Helper>,
    pub(crate) ranges: Ranges,
    /// Variables that are declared with 64 bits.
    pub(crate) wide: BTreeSet<VarId>,
    pub(crate) out: String,
    pub(crate) depth: usize,
    /// What the language alone keeps.
    pub(crate) own: D,
}

/// A language of the family: the words that differ, and the statements that only it has.
pub(crate) trait Dialect: Sized {
    /// The functions of its prelude.
    type Helper: Helper;

    /// Its name in messages.
    const LANGUAGE: &'static str;
    /// Whether integers are `int` where ranges prove that they fit; if not, all keep their types.
    const NARROW: bool;
    /// The type of a condition that is kept.
    const BOOLEAN: &'static str;
    /// What is never true and what always is.
    const TRUTHS: [&'static str; 2];
    /// Whether a zero is stored as a 16-bit float without a conversion.
    const PLAIN_ZEROS: bool;
    /// The operator that counts a loop's variable up, before and behind it.
    const INCREMENT: [&'static str; 2];

    /// The type of an element in memory.
    fn element_type(dtype: DType) -> &'static str;

    /// Its form of a function that all preludes have.
    fn helper(common: Common) -> Self::Helper;

    /// A floating literal that is infinite or no number.
    fn not_finite(value: f64, dtype: DType) -> Text;

    /// Notes a function or word of `<math.h>`.
    fn use_math(_: &mut Printer<'_, Self>) {}

    /// The function that rounds to tf32.
    fn round_tf32(p: &mut Printer<'_, Self>) -> Result<String, EmitError>;

    /// A product of `f32`s, or another number, that is rounded before anything is added to it.
    fn rounded(p: &mut Printer<'_, Self>, value: &Expr) -> Result<Text, EmitError>;

    /// The function for 2 to the power in `f32`, if it is not that of `<math.h>`.
    fn exp2(_: &mut Printer<'_, Self>) -> Option<String> {
        None
    }

    /// A natural number below 2^23 as an `f32`, less a whole number of that size, if there is something quicker than converting it.
    fn small_less(_natural: &Text, _less: f64) -> Option<Text> {
        None
    }

    /// The lvalue of one element.
    fn element(p: &mut Printer<'_, Self>, b: BufferId, indices: &[Expr]) -> Result<String, EmitError>;

    /// The value of an element that has been loaded already.
    fn loaded(_: &Printer<'_, Self>, _: BufferId, _: &[Expr]) -> Option<Text> {
        None
    }

    /// Whether the element is a variable that nothing reads, so that nobody needs to store it.
    fn is_unread(p: &Printer<'_, Self>, b: BufferId, indices: &[Expr]) -> Result<bool, EmitError>;

    /// A value as it is stored in a buffer.
    fn stored(p: &mut Printer<'_, Self>, b: BufferId, value: &Expr) -> Result<String, EmitError> {
        let text = p.scalar(value)?;
        Ok(p.narrowed(b, text))
    }

    /// A store or an update of several lanes.
    fn vector_update(p: &mut Printer<'_, Self>, s: &Stmt) -> Result<(), EmitError>;

    /// The statements of a block.
    fn statements(p: &mut Printer<'_, Self>, stmts: &[Stmt]) -> Result<(), EmitError>;

    /// A statement that not every language has.
    fn special(p: &mut Printer<'_, Self>, s: &Stmt) -> Result<(), EmitError>;

    /// A loop over a hardware index.
    fn hardware_loop(p: &mut Printer<'_, Self>, l: &For) -> Result<(), EmitError>;

    /// The advice to the compiler in front of a loop, if there is any.
    ///
    /// # Errors
    /// If the language does not have the loop.
    fn advice(p: &mut Printer<'_, Self>, l: &For) -> Result<Option<String>, EmitError>;

    /// Begins the body of a loop.
    fn enter_loop(_: &mut Printer<'_, Self>, _: &For) -> Result<(), EmitError> {
        Ok(())
    }

    /// Corrects the ranges where a branch begins.
    fn enter_branch(_: &mut Printer<'_, Self>) {}
}
