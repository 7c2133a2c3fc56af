//! Finding a workload by shapes that are known at run time.

use super::{DynArg, Entry, Function, Param};
use crate::{Device, Error, Result, capture};

impl Function {
    /// Runs the one workload that has the shapes of the arguments. A call whose output has no elements and whose
    /// other extents are declared (an empty batch) does nothing.
    pub fn launch_dyn<D: Device, const N: usize>(&self, dev: &D, args: [DynArg<'_, D>; N]) -> Result<()> {
        let fits = |entry: &Entry| entry.params.len() == N && entry.has_shapes(&args);
        let mut fitting = self.entries.iter().filter(|e| fits(e));
        match (fitting.next(), fitting.next()) {
            (Some(entry), None) => entry.launch(dev, &args.map(|a| a.arg)),
            (None, _) if self.is_empty_batch(&args) => Ok(()),
            (None, _) => Err(self.no_workload(&args)),
            (Some(_), Some(_)) => {
                let workloads = self.entries.iter().filter(|e| fits(e)).map(|e| e.about.name).collect();
                Err(Error::Ambiguous { function: self.name, workloads })
            }
        }
    }

    /// Whether the arguments are those of a declared workload but for a leading extent of 0 in the output and in
    /// what goes with it.
    fn is_empty_batch<D: Device>(&self, args: &[DynArg<'_, D>]) -> bool {
        let empty = |a: &DynArg<'_, D>| a.shape.first() == Some(&0);
        let batch_of_none =
            |p: &Param, a: &DynArg<'_, D>| p.shape == a.shape || (empty(a) && p.shape.get(1..) == a.shape.get(1..));
        args.iter().filter(|a| a.arg.writable).all(empty)
            && args.iter().any(|a| a.arg.writable)
            && self
                .entries
                .iter()
                .any(|e| e.params.len() == args.len() && e.params.iter().zip(args).all(|(p, a)| batch_of_none(p, a)))
    }

    #[cold]
    fn no_workload<D: Device>(&self, args: &[DynArg<'_, D>]) -> Error {
        let names = self.entries.first().map_or(&[][..], |e| e.params);
        let name = |i: usize| names.get(i).map_or("?", |p| p.name);
        let got: Vec<_> = args.iter().enumerate().map(|(i, a)| (name(i), a.shape.to_vec())).collect();
        capture::note(self.name, &got);
        Error::NoWorkload { function: self.name, got, declared: self.entries.iter().map(|e| e.signature()).collect() }
    }
}
