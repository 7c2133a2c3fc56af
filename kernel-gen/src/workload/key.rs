//! Reads a workload's key back: what records and commands name a workload by.

use super::{Conv2d, ConvLayout, DepthwisePointwise, Epilogue, Math, Matmul, Op, Workload};
use crate::ir::DType;

impl Workload {
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
    let mut parts = key.split('-').peekable();
    let name = parts.next()?;
    let conv = match name {
        "conv2d" | "depthwise_conv2d" | "depthwise_pointwise" => true,
        "matmul" | "batch_matmul" => false,
        _ => return None,
    };
    let layout = if conv { Some(layout(parts.next()?)?) } else { None };
    let (dtype, out_dtype) = {
        let part = parts.next()?;
        let (stored, out) = part.split_once('.').unwrap_or((part, part));
        (DType::from_name(stored)?, DType::from_name(out)?)
    };
    let math = parts.peek().and_then(|p| Math::from_name(p));
    if math.is_some() {
        parts.next();
    }
    let op = match layout {
        Some(layout) => {
            let [n, ci, h, w] = numbers(parts.next()?, &["n", "c", "h", "w"])?;
            let [co, kh, kw] = numbers(parts.next()?, &["o", "k", "x"])?;
            let stride = numbers(parts.next()?, &["s", "x"])?;
            let padding = numbers(parts.next()?, &["p", ".", ".", "."])?;
            let dilation = numbers(parts.next()?, &["d", "x"])?;
            let conv = Conv2d { layout, n, ci, h, w, co, kh, kw, stride, padding, dilation, groups: 1 };
            let last = parts.next()?;
            if name == "depthwise_pointwise" {
                let between = last.strip_prefix("dw")?.split('.').skip(1).map(Epilogue::from_name);
                let between = between.collect::<Option<Vec<_>>>()?;
                Op::DepthwisePointwise(DepthwisePointwise::new(conv, co).with_between(&between))
            } else {
                let [groups] = numbers(last, &["g"])?;
                Op::Conv2d(Conv2d { groups, ..conv })
            }
        }
        None => {
            let sizes = parts.next()?;
            let [batch, m, n, k] = if sizes.starts_with('b') {
                numbers(sizes, &["b", "m", "n", "k"])?
            } else {
                let [m, n, k] = numbers(sizes, &["m", "n", "k"])?;
                [1, m, n, k]
            };
            let (trans_a, trans_b) = match parts.next()? {
                "nn" => (false, false),
                "nt" => (false, true),
                "tn" => (true, false),
                "tt" => (true, true),
                _ => return None,
            };
            Op::Matmul(Matmul { batch, m, n, k, trans_a, trans_b })
        }
    };
    let epilogue = match parts.next() {
        Some(steps) => steps.split('.').map(Epilogue::from_name).collect::<Option<Vec<_>>>()?,
        None => vec![],
    };
    if parts.next().is_some() {
        return None;
    }
    Some(Workload { op, dtype, out_dtype, math: math.unwrap_or_default(), epilogue })
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

/// The numbers of `n1c64h56w56` for the letters `n c h w`: each letter is followed by one number.
fn numbers<const N: usize>(text: &str, letters: &[&str; N]) -> Option<[i64; N]> {
    let mut rest = text;
    let mut out = [0; N];
    for (value, letter) in out.iter_mut().zip(letters) {
        rest = rest.strip_prefix(letter)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        *value = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
    }
    rest.is_empty().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::sample::{self, Rng};

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
