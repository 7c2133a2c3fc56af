//! What a misspelt word may have meant.

/// Names of functions that networks are made of: none is a misspelling of another one, however close. Silu is not relu.
const WORDS: [&str; 20] = [
    "abs",
    "celu",
    "cos",
    "elu",
    "exp",
    "gelu",
    "hardswish",
    "log",
    "max",
    "mean",
    "min",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "silu",
    "sin",
    "sum",
    "swish",
];

/// The candidate that `word` is most likely a misspelling of, if one is close enough.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = word.to_lowercase();
    let is_known = WORDS.contains(&wanted.as_str());
    // Nobody misspells a key into something much longer than any key.
    if wanted.len() > 64 {
        return None;
    }
    candidates
        .into_iter()
        .map(|c| (edit_distance(&wanted, &c.to_lowercase()), c))
        .filter(|(distance, c)| *distance <= 1 + c.chars().count() / 4 && !is_known)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// `did you mean ...?` where something is close, and the list of what is allowed.
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
        // Another function of the field is no misspelling.
        assert_eq!(closest("silu", ["relu", "elu", "bias"]), None);
        assert_eq!(closest("swish", ["silu", "mish"]), None);
        assert_eq!(closest("rleu", ["relu", "elu"]), Some("relu"));
    }
}
