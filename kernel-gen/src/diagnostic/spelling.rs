//! What a misspelt word may have meant.

/// Names of operators and types in this field that are words of their own, without the marks between their parts. One that is not known
/// here is missing, not misspelt: another one in its place would give another network.
const WORDS: &str = "\
    abs acos acosh add addmm all and any argmax argmin asin asinh atan atanh attention batchnorm bf16 bmm cast cbrt ceil \
    celu clamp clip concat conv cos cosh cumsum deconv dense det div dropout einsum elu embedding equal erf erfc exp \
    expand expm1 f16 f32 f64 f8 flatten floor fmod fold gather geglu gelu gemm gemv ger glu groupnorm gru hardshrink \
    hardsigmoid hardswish hardtanh hswish i16 i32 i64 i8 identity instancenorm layernorm leakyrelu linear log logsigmoid \
    logsoftmax lrn lstm matmul max maximum maxout mean min minimum mish mod mul multiply neg negate norm not or pad \
    permute pow prelu prod quickgelu reciprocal reglu relu reshape resize rmsnorm rnn round rrelu rsqrt scatter select \
    selu shrink sigmoid sign silu sin sinh slice softmax softmin softplus softshrink softsign split sqrt square stack sub \
    subtract sum swiglu swish tan tanh tanhshrink tile topk transpose unfold upsample where xor";

/// The candidate that `word` is most likely a misspelling of, if one is close enough: one edit away, two if both have six letters.
/// A swap of neighbours is one edit; capitals and the marks between words are none. Names that differ in a number are different names,
/// and of two that are equally close neither was surely meant.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = letters(word);
    // Nobody misspells a key into something much longer than any key.
    if wanted.len() > 64 {
        return None;
    }
    let is_word = WORDS.split(' ').any(|word| word == wanted);
    let distance = |candidate: &str| {
        let meant = letters(candidate);
        let distance = edit_distance(&wanted, &meant);
        let most = match wanted.chars().count().min(meant.chars().count()) {
            _ if is_word || digits(&wanted) != digits(&meant) => 0,
            0..=2 => 0,
            3..=5 => 1,
            _ => 2,
        };
        (distance <= most).then_some(distance)
    };
    let close: Vec<(usize, &str)> = candidates.into_iter().filter_map(|c| Some((distance(c)?, c))).collect();
    let (least, first) = *close.iter().min_by_key(|(distance, _)| *distance)?;
    close.iter().all(|(distance, c)| *distance > least || letters(c) == letters(first)).then_some(first)
}

/// A name in small letters without the marks between its parts.
fn letters(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

fn digits(name: &str) -> String {
    name.chars().filter(char::is_ascii_digit).collect()
}

/// `did you mean ...?` if something is close, and the list of what is allowed.
pub fn suggest(word: &str, allowed: &[&str]) -> String {
    let list = allowed.join(", ");
    match closest(word, allowed.iter().copied()) {
        Some(close) => format!("did you mean `{close}`? Allowed: {list}"),
        None => format!("use one of {list}"),
    }
}

/// Levenshtein's distance with neighbours swapped counted as one edit.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: [Vec<usize>; 3] = [vec![], (0..=b.len()).collect(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substitution = rows[1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substitution.min(rows[1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[0][j - 2] + 1);
            }
        }
        rows[0] = std::mem::replace(&mut rows[1], row);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_find_what_was_meant() {
        let keys = ["stride", "padding", "dilation", "groups"];
        for (word, meant) in
            [("strides", "stride"), ("paddign", "padding"), ("Group", "groups"), ("dialation", "dilation")]
        {
            assert_eq!(closest(word, keys), Some(meant));
        }
        assert_eq!(closest("colour", keys), None);
        // Two edits of a short word make another word; capitals and marks make none.
        assert_eq!(closest("grip", keys), None);
        assert_eq!(closest("HardSwish", ["hard_swish", "hard_sigmoid"]), Some("hard_swish"));
        assert_eq!(closest("sm-90A", ["sm_80", "sm_90a"]), Some("sm_90a"));
        assert_eq!(closest("c", ["a", "b"]), None);
        // Types and layouts are no misspellings of each other.
        assert_eq!((closest("f32", ["i32", "i64"]), closest("fp32", ["f32", "f16"])), (None, Some("f32")));
        assert_eq!((closest("HWCN", ["NCHW", "NHWC"]), closest("NHCW", ["NCHW", "NHWC"])), (None, None));
    }

    /// A network with another operator is another network.
    #[test]
    fn another_operator_is_no_suggestion() {
        let known =
            ["relu", "gelu", "elu", "sigmoid", "tanh", "min", "softmax", "softplus", "conv2d", "max_pool2d", "pow"];
        for word in [
            "silu",
            "selu",
            "celu",
            "Swish",
            "mish",
            "glu",
            "prelu",
            "r-relu",
            "sin",
            "tan",
            "mod",
            "softmin",
            "log_softmax",
        ] {
            assert_eq!(closest(word, known), None, "{word}");
        }
        // Nor is one with other numbers.
        for word in ["relu6", "conv1d", "max_pool3d", "sm_80"] {
            assert_eq!(closest(word, known.into_iter().chain(["sm_90"])), None, "{word}");
        }
        for (word, meant) in [
            ("rleu", "relu"),
            ("gellu", "gelu"),
            ("sigmiod", "sigmoid"),
            ("conv_2d", "conv2d"),
            ("softmaks", "softmax"),
        ] {
            assert_eq!(closest(word, known), Some(meant));
        }
    }
}
