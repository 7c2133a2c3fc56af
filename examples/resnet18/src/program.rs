//! What programs that run a network have in common: how they end, and what counts as an error.

use std::error::Error;
use std::process::ExitCode;

/// Runs a program with the options that were read from its command line; none means that the user asks for help. It fails where
/// `run` does, and where that says that outputs are wrong.
pub fn main<O>(
    name: &str,
    usage: &str,
    options: Result<Option<O>, String>,
    run: impl FnOnce(&O) -> Result<bool, Box<dyn Error>>,
) -> ExitCode {
    let result = match options {
        Ok(Some(options)) => run(&options),
        Ok(None) => {
            print!("{usage}");
            Ok(true)
        }
        Err(message) => Err(message.into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The largest difference relative to the largest expected value; NaN if any output is.
///
/// # Panics
/// If there are not as many of one as of the other.
pub fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len(), "both passes make the same activations");
    let largest = expected.iter().fold(f64::MIN_POSITIVE, |m, e| m.max(e.abs()));
    let difference = found.iter().zip(expected).map(|(f, e)| (f64::from(*f) - e).abs());
    difference.fold(0.0, worse) / largest
}

/// The larger of two errors; NaN is larger than any.
pub fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_is_no_number_is_an_error() {
        assert_eq!(relative_error(&[1.0, -2.0], &[1.0, -4.0]), 0.5);
        assert!(relative_error(&[f32::NAN, 1.0], &[1.0, 1.0]).is_nan());
        assert!(relative_error(&[1.0, f32::NAN, 1.0], &[1.0; 3]).is_nan());
    }

    #[test]
    fn help_and_right_outputs_are_success_and_nothing_else_is() {
        let end = |options, right| format!("{:?}", main("test", "", options, |()| right));
        let (success, failure) = (format!("{:?}", ExitCode::SUCCESS), format!("{:?}", ExitCode::FAILURE));
        assert_eq!(end(Ok(None), Ok(false)), success);
        assert_eq!(end(Ok(Some(())), Ok(true)), success);
        assert_eq!(end(Ok(Some(())), Ok(false)), failure);
        assert_eq!(end(Ok(Some(())), Err("no".into())), failure);
        assert_eq!(end(Err("unknown argument".into()), Ok(true)), failure);
    }
}
