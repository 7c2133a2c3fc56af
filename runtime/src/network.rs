//! What generated networks link: the file of their weights, and the report of their launches.

use crate::dispatch::{Arg, DynArg};
use crate::report::{Row, table};
use crate::{Device, Element, Error, Report, Result, Shape, Tensor};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What a file of weights begins with.
const MAGIC: &[u8; 16] = b"kernel-gen wts 1";

/// Bytes that a file of weights begins with.
const HEAD: usize = 64;

/// A file of weights, or its bytes, which were compared with what the module was generated for.
///
/// It begins with 16 bytes that say what it is, 8 that say which network's it is and 8 with its length, in little-endian
/// order; constants follow, each at a multiple of 64 bytes.
#[derive(Debug)]
pub struct Weights<'a> {
    network: &'static str,
    source: Source<'a>,
}

/// Where weights are.
#[derive(Debug)]
enum Source<'a> {
    Bytes(&'a [u8]),
    File(File, PathBuf),
}

impl<'a> Weights<'a> {
    /// Takes the bytes of a file, which must have this mark and length.
    ///
    /// # Errors
    /// [`Error::Weights`] says how they differ.
    pub fn new(network: &'static str, bytes: &'a [u8], mark: u64, length: u64) -> Result<Weights<'a>> {
        let head = bytes.get(..HEAD).unwrap_or(bytes);
        check(head, bytes.len() as u64, mark, length).map_err(|reason| Error::Weights { network, reason })?;
        Ok(Weights { network, source: Source::Bytes(bytes) })
    }

    /// Opens a file, which must have this mark and length. Each constant is read when it is asked for.
    ///
    /// # Errors
    /// [`Error::Weights`] says how they differ; [`Error::WeightsFile`] says why the file cannot be read.
    pub fn open(network: &'static str, path: &Path, mark: u64, length: u64) -> Result<Weights<'static>> {
        let unreadable = |cause| unreadable(network, path, cause);
        let mut file = File::open(path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        let mut head = vec![];
        file.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(unreadable)?;
        check(&head, bytes, mark, length)
            .map_err(|reason| Error::Weights { network, reason: format!("`{}`: {reason}", path.display()) })?;
        Ok(Weights { network, source: Source::File(file, path.to_path_buf()) })
    }

    /// The constant that begins at a byte, in the device's memory.
    #[doc(hidden)]
    pub fn upload<D: Device, T: Element, S: Shape>(&self, dev: &D, offset: usize) -> Result<D::Tensor<T, S>> {
        let mut tensor = Tensor::<T, S>::try_zeros()?;
        tensor.fill_bytes(|into| match &self.source {
            Source::Bytes(bytes) => {
                into.copy_from_slice(&bytes[offset..offset + into.len()]);
                Ok(())
            }
            Source::File(file, path) => {
                let mut file: &File = file;
                let read = file.seek(SeekFrom::Start(offset as u64)).and_then(|_| file.read_exact(into));
                read.map_err(|cause| unreadable(self.network, path, cause))
            }
        })?;
        dev.take(tensor)
    }
}

/// The error for a file that cannot be read.
fn unreadable(network: &'static str, path: &Path, cause: io::Error) -> Error {
    Error::WeightsFile { network, path: path.to_path_buf(), cause: cause.into() }
}

/// Holds the first bytes of weights, and how many there are, against what they must be; says how they differ.
fn check(head: &[u8], bytes: u64, mark: u64, length: u64) -> std::result::Result<(), String> {
    if head.get(..16) != Some(MAGIC.as_slice()) {
        return Err("they are no weights that kernel-gen wrote".into());
    }
    let number = |at: usize| head.get(at..at + 8).and_then(|b| Some(u64::from_le_bytes(b.try_into().ok()?)));
    if number(16) != Some(mark) {
        return Err("they are those of another model, or of another build".into());
    }
    if number(24) != Some(length) || bytes != length {
        return Err(format!("there are {bytes} bytes of {length}"));
    }
    Ok(())
}

/// What lies between the steps of a network whose images run one by one, for each image that runs at the same time as others.
/// Generated code makes it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Lanes<D: Device, L> {
    lanes: Vec<Mutex<L>>,
    apart: Vec<D>,
}

/// Arguments that all threads of a device take parts of.
struct Ports<'a, D: Device, const P: usize>([(Arg<'a, D>, bool); P]);

// SAFETY: a device that runs bodies on several threads, the CPU, has addresses for pointers, and what is behind them belongs to
// the caller of `Lanes::run` while it runs; `of` answers for who uses which part.
unsafe impl<D: Device, const P: usize> Sync for Ports<'_, D, P> {}

impl<'a, D: Device, const P: usize> Ports<'a, D, P> {
    /// The arguments of one image.
    ///
    /// # Safety
    /// Those of an image are used once at a time.
    unsafe fn of(&self, image: usize, images: usize) -> [Arg<'_, D>; P] {
        std::array::from_fn(|i| {
            let (arg, has_images) = &self.0[i];
            // SAFETY: the caller's promise; what has no part for each image is only read.
            if *has_images { unsafe { arg.of_image(image, images) } } else { arg.again() }
        })
    }
}

impl<D: Device, L: Send> Lanes<D, L> {
    /// Memory for so many images at most, of which a device runs some at the same time.
    ///
    /// # Errors
    /// What `make` says.
    pub fn new(dev: &D, images: usize, make: impl Fn() -> Result<L>) -> Result<Lanes<D, L>> {
        let apart = dev.apart(images);
        let lanes = (0..apart.len().max(1)).map(|_| make().map(Mutex::new)).collect::<Result<_>>()?;
        Ok(Lanes { lanes, apart })
    }

    /// Calls `run` for each image with its parts of the arguments, of which each says whether it has a part for each. As many
    /// images run at the same time as there are threads; those that are left over, fewer than that, have all threads each.
    ///
    /// # Errors
    /// The first that a call gave.
    pub fn run<const P: usize>(
        &mut self,
        dev: &D,
        images: usize,
        ports: [(Arg<'_, D>, bool); P],
        run: impl Fn(&D, &mut L, [Arg<'_, D>; P]) -> Result<()> + Sync,
    ) -> Result<()> {
        let ports = Ports(ports);
        let error = Mutex::new(None);
        let done = dev.run_apart(&self.apart, images, &|at, dev, image| {
            let mut lane = self.lanes[at].lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: each image has its turn once.
            let result = run(dev, &mut lane, unsafe { ports.of(image, images) });
            if let Err(wrong) = result {
                error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(wrong);
            }
        });
        error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)?;
        let lane = self.lanes[0].get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as above.
        (done..images).try_for_each(|image| run(dev, lane, unsafe { ports.of(image, images) }))
    }
}

/// An input or a result of a network whose shapes vary. Generated code makes it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Its name.
    pub name: &'static str,
    /// Its extents, with the most images.
    pub shape: &'static [usize],
    /// Whether the first extent is the number of images.
    pub varies: bool,
}

/// The shapes that one plan of a network is for. Generated code makes it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The fewest images.
    pub least: usize,
    /// The most; 1 where their number does not vary.
    pub most: usize,
    /// Inputs, then results.
    pub ports: &'static [Port],
}

impl Plan {
    /// How many images there are, if the shapes are those of this plan: any number of images, the same everywhere.
    fn images<'a>(&self, shapes: impl Iterator<Item = &'a [usize]>) -> Option<usize> {
        let mut images = None;
        for (port, shape) in self.ports.iter().zip(shapes) {
            // A scalar is an array of one element.
            let shape = if shape.is_empty() { &[1][..] } else { shape };
            let own = if port.varies { shape.first().copied()? } else { 1 };
            let rest = usize::from(port.varies);
            if shape.len() != port.shape.len() || shape[rest..] != port.shape[rest..] {
                return None;
            }
            if port.varies && *images.get_or_insert(own) != own {
                return None;
            }
        }
        Some(images.unwrap_or(1))
    }

    /// The shapes for messages.
    fn signature(&self) -> String {
        let port = |port: &Port| {
            let first = port.varies.then(|| format!("{}..{}", self.least, self.most));
            let rest = port.shape.iter().skip(usize::from(port.varies)).map(usize::to_string);
            format!("{} [{}]", port.name, first.into_iter().chain(rest).collect::<Vec<_>>().join(", "))
        };
        self.ports.iter().map(port).collect::<Vec<_>>().join(", ")
    }
}

/// The plan that takes the shapes of these arguments, and how many images they have. Generated code calls it.
///
/// # Errors
/// [`Error::NoWorkload`] if there is none.
#[doc(hidden)]
pub fn find<D: Device>(network: &'static str, plans: &[Plan], args: &[DynArg<'_, D>]) -> Result<(usize, usize)> {
    let images = |plan: &Plan| plan.images(args.iter().map(|arg| arg.shape));
    let fits =
        |(_, plan): &(usize, &Plan)| images(plan).is_some_and(|n| n == 0 || (plan.least..=plan.most).contains(&n));
    if let Some((at, plan)) = plans.iter().enumerate().find(fits) {
        return Ok((at, images(plan).unwrap_or(0)));
    }
    let ports = plans.first().map_or(&[][..], |plan| plan.ports);
    let got = ports.iter().zip(args).map(|(port, arg)| (port.name, arg.shape.to_vec())).collect();
    Err(Error::NoWorkload { function: network, got, declared: plans.iter().map(Plan::signature).collect() })
}

/// The launches of a network on a device, in order; of a network of any number of images, those for the most. Printing it prints a
/// table with the sum of the expected times.
#[derive(Clone, PartialEq, Debug)]
pub struct Steps {
    steps: Vec<Step>,
}

/// One launch.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The nodes of the model that it computes.
    pub nodes: &'static str,
    /// Its kernel, and where that comes from; none if the device runs no code of the workload.
    pub row: Option<Row>,
}

impl Steps {
    /// The launches with these nodes and workloads. Generated code calls it.
    #[doc(hidden)]
    pub fn new<D: Device>(dev: &D, report: &Report, steps: &[(&'static str, &'static str)]) -> Steps {
        let report = report.for_device(dev);
        // Of a workload of any number of images, the kernel for the most, which is the last.
        let row = |workload: &str| {
            let mut own = report.rows().iter().filter(|row| row.workload == workload && row.target() != "-");
            let first = own.next()?;
            Some(own.take_while(|row| row.target() == first.target()).last().unwrap_or(first))
        };
        let step = |(nodes, workload): &(&'static str, &'static str)| Step { nodes, row: row(workload).cloned() };
        Steps { steps: steps.iter().map(step).collect() }
    }

    /// All launches.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Microseconds of all launches together, as records measured or the model expects them; none if one says nothing.
    pub fn expected_us(&self) -> Option<f64> {
        self.steps.iter().map(|step| step.row.as_ref().and_then(|row| row.cost_us)).sum()
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.steps.iter().enumerate().map(|(i, step)| {
            let row = |cell: fn(&Row) -> String| step.row.as_ref().map_or("-".into(), cell);
            [
                i.to_string(),
                step.nodes.to_string(),
                row(|r| r.operator.to_string()),
                row(|r| r.template.to_string()),
                row(|r| r.origin.to_string()),
                row(|r| r.cost_us.map_or("-".into(), |us| format!("{us:.1}"))),
            ]
        });
        table(f, ["step", "nodes", "operator", "template", "origin", "us"], lines)?;
        let sum = self.expected_us().map_or("an unknown time".into(), |us| format!("{us:.1} us"));
        writeln!(f, "{} launches, {sum} expected", self.steps.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, D1};

    fn file(mark: u64, floats: &[f32]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(mark.to_le_bytes());
        bytes.extend((64 + 4 * floats.len() as u64).to_le_bytes());
        bytes.resize(64, 0);
        bytes.extend(floats.iter().flat_map(|v| v.to_le_bytes()));
        bytes
    }

    /// Doubles images of two numbers, and adds what all share.
    fn doubled(dev: &Cpu, images: usize, wrong: Option<usize>) -> (Vec<f32>, Result<()>) {
        let mut lanes = Lanes::new(dev, images, || Ok(vec![0.0f32; 2])).unwrap();
        let x: Vec<f32> = (0..2 * images).map(|i| i as f32).collect();
        let (shared, mut y) = ([0.5f32], vec![0.0f32; 2 * images]);
        let ports = [(Arg::read(&x), true), (Arg::read(&shared), false), (Arg::write(&mut y), true)];
        let ran = lanes.run(dev, images, ports, |_, lane, [x, shared, mut y]| {
            assert_eq!((x.elements, shared.elements, y.elements, shared.writable), (2, 1, 2, false));
            let y = y.again_mut();
            // SAFETY: the arguments have these types and sizes, and `y` is this call's.
            let (x, shared, y) = unsafe {
                let y = std::slice::from_raw_parts_mut(y.pointer.cast::<f32>(), 2);
                (std::slice::from_raw_parts(x.pointer.cast::<f32>(), 2), *shared.pointer.cast::<f32>(), y)
            };
            lane.iter_mut().zip(x).for_each(|(lane, x)| *lane = 2.0 * x);
            std::thread::yield_now();
            y.iter_mut().zip(&*lane).for_each(|(y, lane)| *y = lane + shared);
            match wrong {
                Some(image) if x[0] == (2 * image) as f32 => Err(Error::OutOfMemory { bytes: image }),
                _ => Ok(()),
            }
        });
        (y, ran)
    }

    #[test]
    fn images_run_once_each_on_any_number_of_threads() {
        for threads in 1..5 {
            let dev = Cpu::with_threads(threads);
            for images in 0..12 {
                let expected: Vec<f32> = (0..2 * images).map(|i| 2.0 * i as f32 + 0.5).collect();
                let (found, ran) = doubled(&dev, images, None);
                assert!(ran.is_ok() && found == expected, "{threads} threads, {images} images: {found:?}");
                for wrong in 0..images {
                    let error = doubled(&dev, images, Some(wrong)).1.unwrap_err();
                    assert!(matches!(error, Error::OutOfMemory { bytes } if bytes == wrong), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_device_of_other_threads_or_level_runs_what_another_one_loaded() {
        let mut lanes = Lanes::new(&Cpu::with_threads(2), 8, || Ok(())).unwrap();
        for threads in [1, 2, 3] {
            let dev = Cpu::with_threads(threads).with_isa(crate::Isa::detect()).unwrap();
            let done = std::sync::atomic::AtomicUsize::new(0);
            let ran = lanes.run(&dev, 7, [], |own, (), []| {
                assert_eq!(own.isa(), dev.isa());
                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            });
            ran.unwrap();
            assert_eq!(done.into_inner(), 7);
        }
    }

    #[test]
    fn weights_are_read_where_they_lie() {
        let bytes = file(7, &[1.5, -2.0, 3.25]);
        let weights = Weights::new("net", &bytes, 7, 76).unwrap();
        let tensor: Tensor<f32, D1<2>> = weights.upload(&Cpu::with_threads(1), 68).unwrap();
        assert_eq!(tensor.as_slice(), [-2.0, 3.25]);
    }

    #[test]
    fn a_file_gives_what_its_bytes_give() {
        use std::error::Error as _;
        let path = std::env::temp_dir().join(format!("kernel-gen-weights-{}", std::process::id()));
        let opened = |mark, length| Weights::open("net", &path, mark, length);
        std::fs::write(&path, file(7, &[1.5, -2.0, 3.25])).unwrap();
        let tensor: Tensor<f32, D1<2>> = opened(7, 76).unwrap().upload(&Cpu::with_threads(1), 68).unwrap();
        assert_eq!(tensor.as_slice(), [-2.0, 3.25]);
        let other = opened(8, 76).unwrap_err().to_string();
        assert!(other.ends_with("`: they are those of another model, or of another build"), "{other}");
        let weights = opened(7, 76).unwrap();
        std::fs::write(&path, [0; 70]).unwrap();
        let cut = weights.upload::<_, f32, D1<2>>(&Cpu::with_threads(1), 68).unwrap_err().to_string();
        assert!(cut.starts_with("the weights of `net` cannot be used: "), "{cut}");
        std::fs::remove_file(&path).unwrap();
        let none = opened(7, 76).unwrap_err();
        assert!(none.to_string().contains("cannot be read: "), "{none}");
        let cause = none.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::NotFound));
    }

    #[test]
    fn other_files_are_refused() {
        let bytes = file(7, &[1.0]);
        let error = |bytes: &[u8], mark, length| Weights::new("net", bytes, mark, length).unwrap_err().to_string();
        assert_eq!(error(b"", 7, 68), "the weights of `net` cannot be used: they are no weights that kernel-gen wrote");
        assert!(error(&bytes, 8, 68).ends_with("they are those of another model, or of another build"));
        assert!(error(&bytes[..66], 7, 68).ends_with("there are 66 bytes of 68"));
    }
}
