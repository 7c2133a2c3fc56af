//! The command line.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
ResNet-18 on generated kernels: one image, one forward pass, every layer timed and checked.

usage: resnet18 [options]
  --image FILE     PNG or PPM picture (default: the scene in the repository)
  --weights FILE   safetensors file with torchvision's names (default: seeded random weights)
  --device NAME    cpu (default) or cuda: the first GPU; where there is none, the CPU after all
  --threads N      worker threads of the CPU (default: one a core)
  --repeat N       timed forward passes (default: 20)
  --help           this text
";

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The CPU.
    Cpu,
    /// The first GPU.
    Cuda,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The picture.
    pub image: PathBuf,
    /// The weights, if not the seeded ones.
    pub weights: Option<PathBuf>,
    /// Where to run.
    pub device: Kind,
    /// Worker threads, if not one a core.
    pub threads: Option<usize>,
    /// Timed passes, at least one.
    pub repeat: usize,
}

impl Options {
    /// Reads the arguments behind the program's name. None: the user asks for help.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
        let scene = concat!(env!("CARGO_MANIFEST_DIR"), "/../picture/scene.png");
        let mut options = Options { image: scene.into(), weights: None, device: Kind::Cpu, threads: None, repeat: 20 };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value; see --help"));
            let positive = |text: String| match text.parse() {
                Ok(n) if n > 0 => Ok(n),
                _ => Err(format!("{argument} {text}: it must be a whole number of at least 1")),
            };
            match argument.as_str() {
                "--image" => options.image = value()?.into(),
                "--weights" => options.weights = Some(value()?.into()),
                "--device" => {
                    options.device = match value()?.as_str() {
                        "cpu" => Kind::Cpu,
                        "cuda" => Kind::Cuda,
                        other => return Err(format!("--device {other}: it must be cpu or cuda")),
                    }
                }
                "--threads" => options.threads = Some(positive(value()?)?),
                "--repeat" => options.repeat = positive(value()?)?,
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
        let options =
            parse("--image a.ppm --weights w.safetensors --device cuda --threads 3 --repeat 7").unwrap().unwrap();
        let expected = Options {
            image: "a.ppm".into(),
            weights: Some("w.safetensors".into()),
            device: Kind::Cuda,
            threads: Some(3),
            repeat: 7,
        };
        assert_eq!(options, expected);
        assert!(parse("").unwrap().unwrap().image.exists());
        assert_eq!(parse("--help"), Ok(None));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("--repeat 0").unwrap_err(), "--repeat 0: it must be a whole number of at least 1");
        assert_eq!(parse("--image").unwrap_err(), "--image needs a value; see --help");
        assert_eq!(parse("--device tpu").unwrap_err(), "--device tpu: it must be cpu or cuda");
        assert_eq!(parse("cat.png").unwrap_err(), "unknown argument cat.png; see --help");
    }
}
