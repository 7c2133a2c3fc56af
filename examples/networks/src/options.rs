//! The command line.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
ResNet-18 and ResNet-50 on generated kernels, each one CUDA graph: timed and checked.

usage: networks [options]
  --networks LIST  of resnet18-f32, resnet18-f16, resnet50-f32, resnet50-f16 (default: all)
  --image FILE     PNG or PPM picture (default: the scene in the repository)
  --repeat N       samples of each time, of 20 replays (default: 40)
  --help           this text
";

/// The networks that there are.
const NETWORKS: [&str; 4] = ["resnet18-f32", "resnet18-f16", "resnet50-f32", "resnet50-f16"];

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Names of networks.
    networks: Vec<String>,
    /// The picture.
    pub image: PathBuf,
    /// Samples, at least one.
    pub repeat: usize,
}

impl Options {
    /// Reads the arguments behind the program's name. None: the user asks for help.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
        let scene = concat!(env!("CARGO_MANIFEST_DIR"), "/../picture/scene.png");
        let networks = NETWORKS.map(String::from).to_vec();
        let mut options = Options { networks, image: scene.into(), repeat: 40 };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value; see --help"));
            match argument.as_str() {
                "--networks" => {
                    options.networks = value()?.split(',').map(String::from).collect();
                    if let Some(unknown) = options.networks.iter().find(|n| !NETWORKS.contains(&n.as_str())) {
                        return Err(format!("--networks {unknown}: it must be of {}", NETWORKS.join(", ")));
                    }
                }
                "--image" => options.image = value()?.into(),
                "--repeat" => {
                    let text = value()?;
                    options.repeat = match text.parse() {
                        Ok(n) if n > 0 => n,
                        _ => return Err(format!("--repeat {text}: it must be a whole number of at least 1")),
                    };
                }
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument {argument}; see --help")),
            }
        }
        Ok(Some(options))
    }

    /// Whether a network is to be run.
    pub(crate) fn wants(&self, network: &str, half: bool) -> bool {
        let name = format!("{network}-{}", if half { "f16" } else { "f32" });
        self.networks.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Options>, String> {
        Options::parse(text.split_whitespace().map(String::from))
    }

    #[test]
    fn networks_are_picked_by_name() {
        let some = parse("--networks resnet18-f16,resnet50-f32 --repeat 3").unwrap().unwrap();
        assert!(some.wants("resnet18", true) && some.wants("resnet50", false));
        assert!(!some.wants("resnet18", false) && !some.wants("resnet50", true));
        assert_eq!(some.repeat, 3);
        let all = parse("").unwrap().unwrap();
        assert!(all.wants("resnet18", false) && all.wants("resnet50", true) && all.image.exists());
        assert_eq!(parse("--help"), Ok(None));
    }

    #[test]
    fn mistakes_are_named() {
        let unknown = "--networks vgg16: it must be of resnet18-f32, resnet18-f16, resnet50-f32, resnet50-f16";
        assert_eq!(parse("--networks vgg16").unwrap_err(), unknown);
        assert_eq!(parse("--repeat 0").unwrap_err(), "--repeat 0: it must be a whole number of at least 1");
        assert_eq!(parse("--image").unwrap_err(), "--image needs a value; see --help");
        assert_eq!(parse("cat.png").unwrap_err(), "unknown argument cat.png; see --help");
    }
}
