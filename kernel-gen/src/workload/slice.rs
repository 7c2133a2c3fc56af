//! Parts of larger tensors: a kernel that writes its output where a concatenation has it, or reads its input from there.
//!
//! What is computed does not depend on it, so a [`Workload`] knows nothing of slices: records, choices and references are those
//! of the dense tensors, and the finished kernel is laid into the larger ones ([`Slices::lay`]).

use super::Workload;
use super::layout::ConvLayout;
use super::operators::Op;
use super::param::{MAX_ELEMENTS, Param, Role, product};
use crate::ir::Kernel;

/// Channels `at..` of a tensor that has `of` of them, as many as the workload's own tensor has. Of operators without a layout it
/// is the last dimension instead: the columns of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Channels of the larger tensor.
    pub of: i64,
    /// The first of them that is the workload's.
    pub at: i64,
}

/// Which tensors of a kernel are slices of larger ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slices {
    /// What the input is read from.
    pub from: Option<Slice>,
    /// What the output is written into. The rest of it stays as it is.
    pub into: Option<Slice>,
}

impl Slices {
    /// The slice that a parameter is.
    fn of(&self, role: Role) -> Option<Slice> {
        match role {
            Role::Input => self.from,
            Role::Output => self.into,
            _ => None,
        }
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        *self == Slices::default()
    }

    /// The parameters as the caller has them: larger tensors instead of the slices.
    pub fn params(&self, w: &Workload) -> Vec<Param> {
        let whole = |p: Param| match (self.of(p.role), axis(&w.op, &p)) {
            (Some(slice), Some(axis)) => {
                let mut shape = p.shape.clone();
                shape[axis] = slice.of;
                Param { shape, ..p }
            }
            _ => p,
        };
        w.params().into_iter().map(whole).collect()
    }

    /// What is wrong with them for a workload: the key of the spec, what was found, and what to write instead.
    pub fn check(&self, w: &Workload) -> Result<(), (&'static str, String, String)> {
        for (key, role, slice) in [("from", Role::Input, self.from), ("into", Role::Output, self.into)] {
            let Some(Slice { of, at }) = slice else { continue };
            let params = w.params();
            let mut meant = params.iter().filter(|p| p.role == role);
            let (Some(param), None) = (meant.next(), meant.next()) else {
                let all: Vec<&str> = params.iter().filter(|p| p.role == role).map(|p| p.name).collect();
                let cause = format!("`{key}` does not say which of {} is meant", all.join(", "));
                return Err((key, cause, format!("leave it out: a {} has no slice of its inputs", w.op_name())));
            };
            let Some(axis) = axis(&w.op, param) else {
                let cause = format!("`{key}` asks for channels of a blocked layout");
                return Err((key, cause, "use NCHW, NHWC or HWCN".into()));
            };
            let n = param.shape[axis];
            if at < 0 || at.saturating_add(n) > of {
                let cause = format!("`{key}` asks for {n} channels from {at} on, where there are {of}");
                // Of what the spec says any number may come here.
                let (most, least) = (of.saturating_sub(n).max(0), at.max(0).saturating_add(n));
                return Err((key, cause, format!("let `at` be 0 to {most}, or `of` at least {least}")));
            }
            let rest: i64 = product(&param.shape) / n.max(1);
            if rest.saturating_mul(of) > MAX_ELEMENTS {
                let cause = format!("`{key}` is of a tensor with more than {MAX_ELEMENTS} elements");
                return Err((key, cause, "make it smaller".into()));
            }
        }
        Ok(())
    }

    /// Where a parameter lies in the larger tensor, if it is a slice of one.
    fn place(&self, w: &Workload, param: &Param) -> Option<Place> {
        let (slice, axis) = (self.of(param.role)?, axis(&w.op, param)?);
        let behind = product(&param.shape[axis + 1..]);
        Some(Place { first: slice.at * behind, run: behind * param.shape[axis], pitch: behind * slice.of })
    }

    /// Where the elements of a parameter lie in the memory that the caller has, in their order.
    pub fn places(&self, w: &Workload, param: &Param) -> impl Iterator<Item = i64> + use<> {
        let elements = param.elements();
        let Place { first, run, pitch } = self.place(w, param).unwrap_or(Place { first: 0, run: elements, pitch: 0 });
        (0..elements).map(move |i| first + i / run * pitch + i % run)
    }

    /// Lays the parameters of a finished kernel into the larger tensors: what is before the channels has other strides, and all
    /// of it begins later. A kernel may see a tensor under another shape; one that does not keep what is before the channels
    /// apart from them cannot be laid, and the reason says so.
    pub fn lay(&self, w: &Workload, kernel: &mut Kernel) -> Result<(), String> {
        for (i, param) in w.params().into_iter().enumerate() {
            let Some(Place { first, run, pitch }) = self.place(w, &param) else { continue };
            let buffer = kernel.buffer_mut(kernel.params[i]);
            // Four bytes at a time.
            let unit = if buffer.dtype.is_word() && param.dtype.is_byte() { 4 } else { 1 };
            if [first, run, pitch].iter().any(|n| n % unit != 0) {
                return Err(format!("it reads `{}` in words, of which a slice is no whole number", buffer.name));
            }
            let [first, run, pitch] = [first, run, pitch].map(|n| n / unit);
            let Some(inner) = (0..=buffer.shape.len()).rev().find(|d| product(&buffer.shape[*d..]) == run) else {
                return Err(format!("it sees `{}` as {:?}, which a slice cannot be", buffer.name, buffer.shape));
            };
            buffer.strides[..inner].iter_mut().for_each(|stride| *stride = *stride / run * pitch);
            buffer.offset = first;
        }
        Ok(())
    }
}

/// A slice in elements.
struct Place {
    /// Those before its first one.
    first: i64,
    /// Those of it that stand together.
    run: i64,
    /// From the first of such to that of the next.
    pitch: i64,
}

/// The dimension of a tensor that counts channels.
fn axis(op: &Op, param: &Param) -> Option<usize> {
    let last = param.shape.len().checked_sub(1)?;
    match op.get().layout() {
        None | Some(ConvLayout::Nhwc) => Some(last),
        Some(ConvLayout::Nchw) => (last > 0).then_some(1),
        Some(ConvLayout::Hwcn) => last.checked_sub(1),
        Some(ConvLayout::NchwC(_) | ConvLayout::NhwcNc(_)) => None,
    }
}
