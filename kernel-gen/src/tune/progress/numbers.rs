//! Numbers and names as people read them.

/// A number of things: `1 trial`, `2 trials`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Microseconds with about four digits.
pub(in crate::tune) fn us(us: f64) -> String {
    match us {
        us if !us.is_finite() => "-".to_string(),
        us if us < 10.0 => format!("{us:.3}"),
        us if us < 100.0 => format!("{us:.2}"),
        us if us < 1000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// Billions of operations a second with about three digits.
pub(in crate::tune) fn rate(gflops: f64) -> String {
    match gflops {
        r if !r.is_finite() => "-".to_string(),
        r if r < 10.0 => format!("{r:.2}"),
        r if r < 100.0 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

/// A share as whole per cent.
pub(in crate::tune) fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", share * 100.0) } else { "-".to_string() }
}

/// A duration as `0.3 s`, `7 s`, `3 min 20 s` or `2 h 5 min`.
pub(in crate::tune) fn span(duration: std::time::Duration) -> String {
    let s = duration.as_secs_f64().round() as u64;
    match s {
        0..3 => format!("{:.1} s", duration.as_secs_f64()),
        3..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

/// A name that is no longer than so many characters; the middle of a longer one is left out.
pub(in crate::tune) fn short(name: &str, most: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= most {
        return name.to_string();
    }
    let head = (most - 1) / 2;
    let tail = most - 1 - head;
    let start: String = chars[..head].iter().collect();
    let end: String = chars[chars.len() - tail..].iter().collect();
    format!("{start}…{end}")
}
