//! Keys: a short text that is equal for two workloads only if they are equal, written and read by the patterns of the operators'
//! [kinds](super::operator::Kind).

use super::dims::{ABSENT, Dims, MAX_RANK};
use super::operator::Kind;
use super::operators::kind;
use super::{ConvLayout, Epilogue, Math, Number, Quant, WeightZero, Workload};
use crate::ir::DType;
use std::fmt::Write;

impl Workload {
    /// A short readable name that is equal for two workloads only if they are equal. Defaults are left out: the
    /// output type where it is the input's, `fp32` math, an empty epilogue.
    ///
    /// `conv2d-nchw-f32-n1c512h7w7-o512k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu`, `matmul-f16.f32-m64n128k256-nt`: the
    /// letters after a product's sizes say for each matrix whether it is transposed.
    /// `depthwise_pointwise-nchw-f32-n1c32h112w112-o64k3x3-s1x1-p1.1.1.1-d1x1-dw.bias.relu6-bias.relu6`: a pair says after
    /// `dw` what stands between the two convolutions.
    pub fn key(&self) -> String {
        let op = self.op.get();
        let mut key = String::from(op.kind().name);
        if let Some(layout) = op.layout() {
            let _ = write!(key, "-{}", layout.name().to_lowercase());
        }
        // Writing to a string cannot fail.
        let _ = write!(key, "-{}", self.dtype);
        if self.is_quantised() {
            key.push_str(if self.quant.input_zero { "z" } else { "" });
            if self.has_weight() {
                let _ = write!(key, "{}", self.quant.weight);
            }
            key.push_str(["", "z", "c"][self.quant.weight_zero as usize]);
        }
        if self.out_dtype != self.dtype {
            let _ = write!(key, ".{}", self.out_dtype);
        }
        if self.math != Math::default() {
            let _ = write!(key, "-{}", self.math.name());
        }
        key.push('-');
        write_sizes(op.kind().pattern, &op.sizes(), &mut key);
        if !self.epilogue.is_empty() {
            let names: Vec<String> = self.epilogue.iter().map(|e| e.key()).collect();
            let _ = write!(key, "-{}", names.join("."));
        }
        key
    }

    /// The workload whose [`key`](Workload::key) this is, or what is wrong with the text.
    pub fn from_key(key: &str) -> Result<Workload, String> {
        let workload = read(key).ok_or_else(|| {
            format!(
                "`{key}` is not the key of a workload; keys look like \
                 conv2d-nchw-f32-n1c64h56w56-o64k3x3-s1x1-p1.1.1.1-d1x1-g1-bias.relu or matmul-f32-m512n512k512-nn"
            )
        })?;
        workload.validate().map_err(|error| format!("`{key}`: {error}"))?;
        // Defaults that are spelled out, or an operator's name that its sizes contradict.
        let canonical = workload.key();
        if canonical == key { Ok(workload) } else { Err(format!("`{key}` is written {canonical}")) }
    }
}

/// Reads every part of a key; the caller checks that it says the same when it is written again.
fn read(key: &str) -> Option<Workload> {
    let (name, mut rest) = key.split_once('-')?;
    let kind: &Kind = kind(name)?;
    let mut part = || {
        let (part, behind) = rest.split_once('-')?;
        rest = behind;
        Some(part)
    };
    let layout = if kind.layouts.is_empty() { ConvLayout::Nchw } else { layout(part()?)? };
    let types = part()?;
    let (stored, out) = types.split_once('.').unwrap_or((types, types));
    let (dtype, quant) = inputs(stored)?;
    let out_dtype = if stored == out { dtype } else { DType::from_name(out)? };
    let math = rest.split('-').next().and_then(Math::from_name);
    if let Some(math) = math {
        rest = rest[math.name().len()..].strip_prefix('-')?;
    }
    let mut sizes = vec![];
    let rest = read_sizes(kind.pattern, rest, &mut sizes)?;
    let op = (kind.of_sizes)(layout, &sizes)?;
    let epilogue = match rest.strip_prefix('-') {
        Some(steps) => steps.split('.').map(Epilogue::from_key).collect::<Option<Vec<_>>>()?,
        None if rest.is_empty() => vec![],
        None => return None,
    };
    Some(Workload { op, dtype, out_dtype, math: math.unwrap_or_default(), epilogue, quant })
}

/// The type of inputs; of integers with zero points and the type of weights: `u8`, `u8zi8`, `i8u8c`.
fn inputs(text: &str) -> Option<(DType, Quant)> {
    if let Some(dtype) = DType::from_name(text) {
        return Some((dtype, Quant::default()));
    }
    let (dtype, rest) = text.split_at_checked(2)?;
    let (input_zero, rest) = rest.strip_prefix('z').map_or((false, rest), |rest| (true, rest));
    let (weight, zero) = if rest.is_empty() { ("i8", "") } else { rest.split_at_checked(2)? };
    let weight_zero = match zero {
        "" => WeightZero::None,
        "z" => WeightZero::Tensor,
        "c" => WeightZero::Channel,
        _ => return None,
    };
    Some((DType::from_name(dtype)?, Quant { weight: DType::from_name(weight)?, input_zero, weight_zero }))
}

/// Writes sizes as a pattern has them.
fn write_sizes(pattern: &str, sizes: &[i64], key: &mut String) {
    let (mut rest, mut sizes) = (pattern, sizes);
    while let [size, others @ ..] = sizes {
        let (text, choices, behind) = next_size(rest).expect("a pattern has a place for each size");
        key.push_str(text);
        (rest, sizes) = (behind, others);
        match choices {
            "" => key.push_str(&size.to_string()),
            LIST => {
                let (list, behind) = others.split_at(MAX_RANK - 1);
                let there = [size].into_iter().chain(list).filter(|size| **size != ABSENT);
                key.push_str(&there.map(|size| size.to_string().replace('-', "m")).collect::<Vec<_>>().join("x"));
                sizes = behind;
            }
            NUMBER => key.push_str(&Number::of_size(*size).map_or("?".into(), Number::key)),
            _ => key.push_str(choices.split('|').nth(*size as usize).unwrap_or("?")),
        }
    }
    key.push_str(rest);
}

/// Reads sizes that a pattern wrote, and returns what is behind them.
fn read_sizes<'k>(pattern: &str, mut key: &'k str, sizes: &mut Vec<i64>) -> Option<&'k str> {
    let mut rest = pattern;
    while let Some((text, choices, behind)) = next_size(rest) {
        key = key.strip_prefix(text)?;
        let length = if choices.is_empty() {
            let digits = key.bytes().take_while(u8::is_ascii_digit).count();
            sizes.push(key[..digits].parse().ok()?);
            digits
        } else if choices == NUMBER {
            let length = key.bytes().take_while(u8::is_ascii_alphanumeric).count();
            sizes.push(Number::from_key(&key[..length])?.to_size());
            length
        } else if choices == LIST {
            let length = key.bytes().take_while(|b| b.is_ascii_digit() || b"xm".contains(b)).count();
            let list: Vec<i64> =
                key[..length].split('x').map(|n| n.replace('m', "-").parse().ok()).collect::<Option<_>>()?;
            sizes.extend(Dims::new(&list)?.sizes());
            length
        } else {
            // The longest: one may begin as another does.
            let found = choices.split('|').enumerate().filter(|(_, word)| key.starts_with(word));
            let (number, word) = found.max_by_key(|(_, word)| word.len())?;
            sizes.push(number as i64);
            word.len()
        };
        key = &key[length..];
        rest = behind;
    }
    key.strip_prefix(rest)
}

/// What a pattern has for a list.
const LIST: &str = "x";

/// What a pattern has for a number that is no size.
const NUMBER: &str = "f";

/// The text before the first size of a pattern, the alternatives of that size (none of a number), and what is behind it.
fn next_size(pattern: &str) -> Option<(&str, &str, &str)> {
    let (text, rest) = pattern.split_once('{')?;
    let (choices, behind) = rest.split_once('}')?;
    Some((text, choices, behind))
}

fn layout(name: &str) -> Option<ConvLayout> {
    if let Some(known) = ConvLayout::ALL.into_iter().find(|l| l.name().to_lowercase() == name) {
        return Some(known);
    }
    if let Some(blocks) = name.strip_prefix("nhwc") {
        // `nhwc16n16c`: the same number twice.
        let (block, again) = blocks.strip_suffix('c')?.split_once('n')?;
        return (block == again).then(|| block.parse().ok().map(ConvLayout::NhwcNc)).flatten();
    }
    name.strip_prefix("nchw")?.strip_suffix('c')?.parse().ok().map(ConvLayout::NchwC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::sample::{self, Rng};
    use crate::workload::{Conv2d, Matmul};

    #[test]
    fn every_key_reads_back() {
        let mut rng = Rng::new(1);
        for _ in 0..500 {
            let w = sample::workload(&mut rng);
            assert_eq!(Workload::from_key(&w.key()), Ok(w.clone()), "{}", w.key());
        }
    }

    #[test]
    fn unusual_keys_read_back() {
        let tiles = Conv2d { layout: ConvLayout::NhwcNc(8), ..Conv2d::nchw(16, 16, 9, 7, 24, 3, 2, 1) };
        let tiles = Workload::f32(tiles);
        assert_eq!(Workload::from_key(&tiles.key()), Ok(tiles));
        let blocked = Conv2d { layout: ConvLayout::NchwC(8), ..Conv2d::nchw(2, 16, 9, 7, 24, 3, 2, 1) };
        let workloads = [
            Workload { math: Math::Tf32, ..Workload::f32(blocked) },
            Workload { out_dtype: DType::F32, ..Workload::f32(Matmul::new(3, 4, 5)).with_dtype(DType::F16) },
            Workload::f32(Matmul { batch: 7, trans_a: true, trans_b: true, ..Matmul::new(1, 2, 3) }),
            Workload::f32(Conv2d::nchw(1, 32, 5, 5, 32, 3, 1, 1).depthwise(1)).with_epilogue(&[Epilogue::ResidualAdd]),
        ];
        for w in workloads {
            assert_eq!(Workload::from_key(&w.key()), Ok(w));
        }
    }

    #[test]
    fn what_is_not_a_key_says_what_keys_look_like() {
        for bad in
            ["", "conv", "conv2d", "matmul-f32-m1n2-nn", "matmul-f32-m1n2k3-nn-relu-bias", "matmul-f32-m1n2k3-xx"]
        {
            let message = Workload::from_key(bad).unwrap_err();
            assert!(message.contains("is not the key of a workload; keys look like conv2d-nchw"), "{message}");
        }
        assert_eq!(
            Workload::from_key("matmul-f32-fp32-m01n2k3-nn").unwrap_err(),
            "`matmul-f32-fp32-m01n2k3-nn` is written matmul-f32-m1n2k3-nn"
        );
        assert!(Workload::from_key("matmul-f32-m0n2k3-nn").is_err());
        assert!(Workload::from_key("matmul-i32-m1n2k3-nn").is_err());
    }
}
