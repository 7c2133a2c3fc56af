//! What a measurer and the process that holds its GPU tell each other.
//!
//! A message is a frame: [`MAGIC`], the lengths of two parts as little-endian `u64`s, a JSON object, and bytes. What a
//! kernel prints comes between frames and is skipped.

use crate::emit::cuda::Launch;
use crate::tune::measure::{PeerTiming, Sampling, WireOutcome};
use crate::workload::special::Reach;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// What a frame begins with.
const MAGIC: &[u8; 8] = b"\0KGFRAME";

/// What the worker is asked to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// The workload's key.
    pub(super) workload: String,
    /// What its inputs are drawn from.
    pub(super) seed: u64,
    /// The candidates: one to measure, several to compare.
    pub(super) candidates: Vec<Candidate>,
    /// Whether they are compared: more samples, and cold ones too.
    pub(super) compare: bool,
    /// The best time of the workload so far.
    pub(super) best_us: Option<f64>,
    pub(super) sampling: Sampling,
    /// Names of the libraries that are compared too.
    pub(super) peers: Vec<String>,
}

/// A candidate: its program, and those that pack its parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Candidate {
    pub(super) main: Program,
    pub(super) packs: Vec<Pack>,
    /// What its outputs depend on, and so the bounds that hold for them.
    pub(super) reach: Reach,
}

/// What packs a parameter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Pack {
    /// Which parameter of the workload.
    pub(super) param: usize,
    /// Bytes of its packed form.
    pub(super) bytes: usize,
    /// Takes the parameter and its packed form.
    pub(super) program: Program,
}

/// Compiled code and its launches.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Program {
    pub(super) launches: Vec<Launch>,
    pub(super) workspace_bytes: usize,
    /// Length of its image, which follows those of the programs before it in the frame's bytes.
    pub(super) image_bytes: usize,
}

/// What the worker says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It has the device.
    Ready(Device),
    /// It has none.
    NoDevice(String),
    /// What it begins to do now, which may take so many seconds besides the run limit.
    Begins(Stage, f64),
    /// What became of the candidates of the request.
    Done {
        outcomes: Vec<WireOutcome>,
        /// The libraries that were asked for, in that order.
        peers: Vec<Result<PeerTiming, String>>,
        /// Whether the device's context is lost, and the worker ends.
        lost: bool,
    },
}

/// The stages of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Inputs and reference are computed.
    Data,
    /// Code is loaded.
    Load,
    /// A candidate runs for the first time.
    Run,
    /// What it computed is looked at.
    Check,
    /// It is timed.
    Time,
}

/// The device that a worker holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) capability: (u32, u32),
    pub(super) multiprocessors: u32,
    pub(super) clock_mhz: u32,
    pub(super) uuid: String,
    pub(super) driver: (u32, u32),
}

/// Writes a frame.
pub(super) fn write(to: &mut impl Write, message: &impl Serialize, bytes: &[u8]) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let mut head = MAGIC.to_vec();
    head.extend((json.len() as u64).to_le_bytes());
    head.extend((bytes.len() as u64).to_le_bytes());
    head.extend(json);
    to.write_all(&head)?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads the next frame; none at the end of the input.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut seen = 0;
    while seen < MAGIC.len() {
        let mut byte = [0];
        if from.read(&mut byte)? == 0 {
            return Ok(None);
        }
        // The first byte of the magic is nowhere else in it.
        seen = if byte[0] == MAGIC[seen] { seen + 1 } else { usize::from(byte[0] == MAGIC[0]) };
    }
    let mut part = |limit: u64| -> io::Result<u64> {
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("a part of {length} bytes"));
        (length <= limit).then_some(length).ok_or_else(wrong)
    };
    let (json_bytes, rest_bytes) = (part(1 << 30)?, part(1 << 33)?);
    let mut json = vec![];
    from.by_ref().take(json_bytes).read_to_end(&mut json)?;
    let mut rest = vec![];
    from.by_ref().take(rest_bytes).read_to_end(&mut rest)?;
    if (json.len() as u64, rest.len() as u64) != (json_bytes, rest_bytes) {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&json)?, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::bound::Accuracy;

    #[test]
    fn frames_are_read_back_and_what_lies_between_is_skipped() {
        let mut pipe = vec![];
        let reply = Reply::Begins(Stage::Run, 2.5);
        write(&mut pipe, &reply, b"abc").unwrap();
        pipe.extend(b"a kernel says hello\n\0\0KGFRA");
        write(&mut pipe, &Reply::Done { outcomes: vec![], peers: vec![], lost: true }, &[]).unwrap();
        let mut rest = pipe.as_slice();
        assert_eq!(read::<Reply>(&mut rest).unwrap(), Some((reply, b"abc".to_vec())));
        let (done, bytes) = read::<Reply>(&mut rest).unwrap().unwrap();
        assert_eq!((done, bytes), (Reply::Done { outcomes: vec![], peers: vec![], lost: true }, vec![]));
        assert_eq!(read::<Reply>(&mut rest).unwrap(), None);
        // A frame that is cut is no frame.
        for end in 0..pipe.len() {
            let mut cut = &pipe[..end];
            while let Some((_, bytes)) = read::<Reply>(&mut cut).unwrap_or(None) {
                assert!(bytes.is_empty() || bytes == b"abc");
            }
        }
    }

    #[test]
    fn libraries_survive_the_journey() {
        let timing = PeerTiming {
            way: "cuDNN gemm".into(),
            tried: vec!["cuDNN gemm: 2.5 us".into(), "cuDNN fft: no".into()],
            samples_us: vec![2.5],
            cold_us: vec![3.0, 3.25],
            accuracy: Accuracy { max: 1e-7, rms: 2e-8 },
        };
        for result in [Ok(timing), Err("it is not here".to_string())] {
            let text = serde_json::to_string(&result).unwrap();
            assert_eq!(serde_json::from_str::<Result<PeerTiming, String>>(&text).unwrap(), result);
        }
    }
}
