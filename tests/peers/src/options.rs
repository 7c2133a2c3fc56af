//! The command line.

use kernel_gen_runtime::Isa;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const USAGE: &str = "\
Times generated kernels and what users would pick instead, in one process, in turns.

usage: peers [options]
  --list NAME      the layers: resnet18 (default), resnet50, vgg16, inception_v3, mobilenet_v1, matmul, skinny,
                   network (the whole of examples/resnet18); those that were built by a feature of their name
  --threads N      threads of everybody (default: 1)
  --only PART      only layers whose name contains PART; may be given several times
  --seconds N      time for the rounds (default: 40)
  --isa LEVEL      holds our kernels to a lower level, and hides AVX-512 from the peers: x86-64-v3
  --ort FILE       ONNX Runtime's library
  --onednn FILE    the shim around oneDNN that run.sh compiles
  --torch PYTHON   a Python interpreter that has PyTorch, which takes part too
  --crates FILE    the library of the crates tract, rten, candle and gemm that run.sh builds
  --onnx FILE      writes the model of the list `network`
  --json FILE      all figures, for programs
  --help           this text
";

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) list: String,
    pub(crate) threads: usize,
    pub(crate) only: Vec<String>,
    pub(crate) budget: Duration,
    pub(crate) isa: Option<Isa>,
    pub(crate) ort: Option<PathBuf>,
    pub(crate) onednn: Option<PathBuf>,
    pub(crate) torch: Option<PathBuf>,
    pub(crate) crates: Option<PathBuf>,
    #[cfg_attr(not(feature = "network"), allow(dead_code, reason = "only the network has a model worth keeping"))]
    pub(crate) onnx: Option<PathBuf>,
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments behind the program's name. None: the user asks for help.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let mut options = Options {
            list: "resnet18".into(),
            threads: 1,
            only: vec![],
            budget: Duration::from_secs(40),
            isa: None,
            ort: None,
            onednn: None,
            torch: None,
            crates: None,
            onnx: None,
            json: None,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value; see --help"));
            let number = |text: String| match text.parse() {
                Ok(n) if n > 0 => Ok(n),
                _ => Err(format!("{argument} {text}: it must be a whole number of at least 1")),
            };
            match argument.as_str() {
                "--list" => options.list = value()?,
                "--threads" => options.threads = number(value()?)?,
                "--only" => options.only.push(value()?),
                "--seconds" => options.budget = Duration::from_secs(number(value()?)? as u64),
                "--isa" => {
                    let name = value()?;
                    let level = Isa::from_name(&name).ok_or(format!("--isa {name}: there is no such level"))?;
                    options.isa = Some(level);
                }
                "--ort" => options.ort = Some(value()?.into()),
                "--onednn" => options.onednn = Some(value()?.into()),
                "--torch" => options.torch = Some(value()?.into()),
                "--crates" => options.crates = Some(value()?.into()),
                "--onnx" => options.onnx = Some(value()?.into()),
                "--json" => options.json = Some(value()?.into()),
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument {argument}; see --help")),
            }
        }
        Ok(Some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Options>, String> {
        Options::parse(text.split_whitespace().map(String::from))
    }

    #[test]
    fn options_are_read() {
        let options = parse("--list matmul --threads 2 --only 512 --only 1024 --isa x86-64-v3").unwrap().unwrap();
        assert_eq!((options.list.as_str(), options.threads, options.only.len()), ("matmul", 2, 2));
        assert_eq!(options.isa, Some(Isa::X86_64V3));
        assert!(parse("--help").unwrap().is_none());
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("--threads 0").unwrap_err(), "--threads 0: it must be a whole number of at least 1");
        assert_eq!(parse("--isa z80").unwrap_err(), "--isa z80: there is no such level");
        assert_eq!(parse("--list").unwrap_err(), "--list needs a value; see --help");
    }
}
