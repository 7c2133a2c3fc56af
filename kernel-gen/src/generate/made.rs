//! A choice as code, in C or in CUDA.

use super::c::{Made as CMade, Source};
use super::chosen::Chosen;
use super::cuda::{CudaSource, Made as CudaMade};
use super::error::GenerateError;
use super::{c, cuda};
use crate::emit::rust::Choice;
use crate::stored::{Stored, stored};

/// The code of a workload on a target.
pub(super) enum Made {
    C(CMade),
    Cuda(CudaMade),
}

/// Makes the code of a choice.
pub(super) fn make(chosen: &Chosen<'_>, prefix: &str) -> Result<Made, GenerateError> {
    match chosen.target.cpu() {
        Some(_) => c::make(chosen, prefix).map(Made::C),
        None => cuda::make(chosen).map(Made::Cuda),
    }
}

impl Made {
    /// Which kernel it is, as the wrappers' tables say it.
    pub(super) fn choice_mut(&mut self) -> &mut Choice {
        match self {
            Made::C(made) => &mut made.variant.choice,
            Made::Cuda(made) => &mut made.variant.choice,
        }
    }

    /// The forms that it takes packed parameters in: which, and what packs, by a name that says what it does.
    pub(super) fn forms(&self) -> Vec<(usize, &str)> {
        match self {
            Made::C(made) => made.variant.packs.iter().map(|(i, pack)| (*i, pack.program.symbol.as_str())).collect(),
            Made::Cuda(made) => made.variant.packs.iter().map(|(i, pack)| (*i, pack.program.image.as_str())).collect(),
        }
    }
}

stored! {
    Source { name, flags, text, helpers, prototypes }
    CMade { variant, sources }
    CudaMade { variant, sources }
}

impl Stored for Made {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Made::C(made) => {
                0u8.put(out);
                made.put(out);
            }
            Made::Cuda(made) => {
                1u8.put(out);
                made.put(out);
            }
        }
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::get(from)? {
            0 => Made::C(Stored::get(from)?),
            1 => Made::Cuda(Stored::get(from)?),
            _ => return None,
        })
    }
}

/// Of a workload's kernel: code of the user's own is none.
impl Stored for CudaSource {
    fn put(&self, out: &mut Vec<u8>) {
        (self.name.clone(), (self.arch.clone(), self.text.clone())).put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some(CudaSource { name: Stored::get(from)?, arch: Stored::get(from)?, text: Stored::get(from)?, own: None })
    }
}
