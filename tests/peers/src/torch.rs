//! PyTorch, in a child of this program (`shim/torch_peer.py`), which times its calls itself: a call through the pipe would
//! cost more than a small layer.

use crate::contest::Contestant;
use crate::layers::{Activation, Data, Op, Problem};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

/// The Python program of the child.
const PROGRAM: &str = include_str!("../shim/torch_peer.py");

/// The child, waiting for requests.
pub(crate) struct Torch {
    pipe: RefCell<Pipe>,
    pub(crate) version: String,
}

/// Both ends of the conversation.
struct Pipe {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Torch {
    /// Starts the child with a Python interpreter that has PyTorch. It takes the variables of OpenMP from this process.
    pub(crate) fn start(python: &Path, threads: usize, cores: &[usize]) -> Result<Rc<Torch>, String> {
        let mut child = Command::new(python)
            .args(["-c", PROGRAM])
            .arg(threads.to_string())
            .args(cores[..threads].iter().map(usize::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", python.display()))?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(requests), Some(answers)) = (requests, answers) else { return Err("a child without pipes".into()) };
        let mut pipe = Pipe { child, requests, answers: BufReader::new(answers) };
        let hello = pipe.answer()?;
        let version = hello["version"].as_str().unwrap_or("of an unknown version").to_string();
        Ok(Rc::new(Torch { pipe: RefCell::new(pipe), version }))
    }
}

impl Pipe {
    fn answer(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|e| format!("PyTorch: {e}"))?;
        let answer: Value = serde_json::from_str(&line).map_err(|_| "PyTorch: the child has ended".to_string())?;
        match answer["error"].as_str() {
            Some(why) => Err(format!("PyTorch: {why}")),
            None => Ok(answer),
        }
    }

    /// Sends a request with the tensors that belong to it, and gives the answer.
    fn ask(&mut self, request: &Value, tensors: &[&[f32]]) -> Result<Value, String> {
        let mut bytes = format!("{request}\n").into_bytes();
        bytes.extend(tensors.iter().flat_map(|t| t.iter()).flat_map(|v| v.to_le_bytes()));
        self.requests.write_all(&bytes).and_then(|()| self.requests.flush()).map_err(|e| format!("PyTorch: {e}"))?;
        self.answer()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // What may fail is that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a layer's tensors lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// As everybody's: NCHW.
    Plain,
    /// Channels last, which a model keeps between its layers if it is asked to.
    ChannelsLast,
}

/// A layer that the child has made ready.
pub(crate) struct Layer {
    torch: Rc<Torch>,
    index: u64,
    /// The way of calling PyTorch that was fastest.
    pub(crate) implementation: String,
}

impl Layer {
    pub(crate) fn new(torch: &Rc<Torch>, problem: &Problem, data: &Data, layout: Layout) -> Result<Layer, String> {
        let request = json!({ "new": describe(problem, layout)? });
        let tensors: [&[f32]; 4] = [&data.input, &data.weight, &data.bias, &data.residual];
        let answer = torch.pipe.borrow_mut().ask(&request, &tensors)?;
        let index = answer["layer"].as_u64().ok_or("PyTorch: a layer without a number")?;
        let implementation = answer["ran"].as_str().unwrap_or_default().to_string();
        Ok(Layer { torch: Rc::clone(torch), index, implementation })
    }
}

/// The layer in the words of the child.
fn describe(problem: &Problem, layout: Layout) -> Result<Value, String> {
    let activation = match problem.activation {
        Activation::None => "none",
        Activation::Relu => "relu",
        Activation::Relu6 => "relu6",
        Activation::Gelu => return Err("no list has a GELU".into()),
    };
    let output = problem.op.output();
    let mut layer = json!({
        "layout": if layout == Layout::Plain { "plain" } else { "channels_last" },
        "activation": activation,
        "input": problem.op.input(),
        "weight": problem.op.weight(),
        "bias": problem.bias.then(|| vec![problem.op.channels()]),
        "residual": problem.residual.then_some(output),
    });
    let more = match problem.op {
        Op::Conv(c) => {
            if c.padding[..2] != c.padding[2..] {
                return Err("PyTorch: both sides of a convolution have the same padding".into());
            }
            json!({
                "op": "conv", "stride": c.stride, "padding": c.padding[..2], "dilation": c.dilation, "groups": c.groups,
            })
        }
        Op::Product(p) => json!({ "op": "product", "trans_a": p.trans_a, "trans_b": p.trans_b }),
    };
    if let (Value::Object(layer), Value::Object(more)) = (&mut layer, more) {
        layer.extend(more);
    }
    Ok(layer)
}

impl Contestant for Layer {
    fn run(&mut self) -> Result<(), String> {
        self.time(1).map(drop)
    }

    fn time(&mut self, runs: usize) -> Result<Duration, String> {
        let answer = self.torch.pipe.borrow_mut().ask(&json!({ "time": self.index, "runs": runs }), &[])?;
        answer["seconds"].as_f64().map(Duration::from_secs_f64).ok_or_else(|| "PyTorch: no time".into())
    }

    fn result(&mut self) -> Result<Vec<f32>, String> {
        let mut pipe = self.torch.pipe.borrow_mut();
        let answer = pipe.ask(&json!({ "result": self.index }), &[])?;
        let values = answer["values"].as_u64().ok_or("PyTorch: a result without a length")?;
        let mut bytes = vec![0; 4 * values as usize];
        pipe.answers.read_exact(&mut bytes).map_err(|e| format!("PyTorch: {e}"))?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Conv;

    #[test]
    fn a_convolution_is_described_in_the_words_of_the_child() {
        let conv = Conv {
            n: 1,
            ci: 8,
            h: 5,
            w: 5,
            co: 4,
            kh: 3,
            kw: 3,
            stride: [2, 2],
            padding: [1, 1, 1, 1],
            dilation: [1, 1],
            groups: 1,
        };
        let problem = Problem { op: Op::Conv(conv), bias: true, residual: false, activation: Activation::Relu };
        let layer = describe(&problem, Layout::ChannelsLast).unwrap();
        assert_eq!(layer["input"], json!([1, 8, 5, 5]));
        assert_eq!((&layer["bias"], &layer["residual"]), (&json!([4]), &Value::Null));
        assert_eq!((&layer["padding"], &layer["layout"]), (&json!([1, 1]), &json!("channels_last")));
        let uneven = Problem { op: Op::Conv(Conv { padding: [0, 0, 1, 1], ..conv }), ..problem };
        assert!(describe(&uneven, Layout::Plain).unwrap_err().contains("same padding"));
    }

    #[test]
    fn an_interpreter_that_is_not_there_is_named() {
        let error = Torch::start(Path::new("/nowhere/python"), 1, &[0]).map(drop).unwrap_err();
        assert!(error.starts_with("/nowhere/python: "), "{error}");
    }
}
