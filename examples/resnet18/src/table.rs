//! Text tables.

use std::fmt::Write;

/// How the cells of a column line up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// The rows under their headings, each column as wide as its widest cell, with two spaces between.
pub fn render<const N: usize>(columns: [(&str, Align); N], rows: &[[String; N]]) -> String {
    let width = |c: usize| {
        let cells = rows.iter().map(|r| r[c].chars().count());
        cells.chain([columns[c].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let headings = columns.map(|c| c.0.to_string());
    let rule = std::array::from_fn(|c| "-".repeat(widths[c]));
    let mut out = String::new();
    for row in [&headings, &rule].into_iter().chain(rows) {
        let cells: Vec<String> = (row.iter().zip(&widths).zip(&columns))
            .map(|((cell, w), (_, align))| match align {
                Align::Left => format!("{cell:<w$}"),
                Align::Right => format!("{cell:>w$}"),
            })
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out
}

/// The median of a list that is not empty.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["conv1".to_string(), "7".into()], ["fc".to_string(), "1234".into()]];
        let table = render([("layer", Align::Left), ("us", Align::Right)], &rows);
        assert_eq!(table, "layer    us\n-----  ----\nconv1     7\nfc     1234\n");
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
