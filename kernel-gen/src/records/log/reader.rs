//! Reads a log, line by line.

use super::entry::{Compared, Entry, Machine, Place, Run, RunId, Seed};
use super::line::{LineFault, Parsed, parse_line};
use super::writer::LogError;
use crate::diagnostic::Diagnostic;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// No line that is written is longer than this many bytes; a longer one is not kept in memory.
const LONGEST_LINE: u64 = 1 << 20;

/// U+FEFF in UTF-8.
pub(in crate::records) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// What a line of a log says.
#[derive(Clone, PartialEq, Debug)]
pub enum LogItem {
    /// A run began.
    Run {
        /// Its name.
        id: RunId,
        /// The run.
        run: Box<Run>,
        /// When, in seconds since 1970.
        started: u64,
    },
    /// A config was tried.
    Trial(Box<Entry>),
    /// A workload's fastest configs were compared.
    Compared(Box<Compared>),
    /// A config was measured elsewhere.
    Seed(Box<Seed>),
    /// What this worker of a fleet measured counts no more.
    Dropped(String),
}

/// Streams the lines of a log. A line that cannot be read is one [`Diagnostic`], and the next line is read after it;
/// empty lines are passed over.
pub struct LogReader<R> {
    file: Arc<str>,
    input: R,
    line: usize,
    offset: u64,
    /// The machine and the worker of each run.
    runs: BTreeMap<RunId, (Arc<Machine>, Option<Arc<str>>)>,
    ended: bool,
}

impl LogReader<BufReader<File>> {
    /// Opens a log.
    pub fn open(path: &Path) -> Result<LogReader<BufReader<File>>, LogError> {
        let failed = |error| LogError::Io { file: path.to_path_buf(), doing: "open", error };
        let file = File::open(path).map_err(failed)?;
        // Some systems open a folder and fail at its first byte only.
        if file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        Ok(LogReader::new(BufReader::new(file), &path.display().to_string().replace('\\', "/")))
    }
}

impl<R: BufRead> LogReader<R> {
    /// Reads a log from somewhere else; `file` is its name in messages.
    pub fn new(input: R, file: &str) -> LogReader<R> {
        LogReader { file: file.into(), input, line: 0, offset: 0, runs: BTreeMap::new(), ended: false }
    }

    /// The next line without its end, where it lies, and whether its end is missing.
    pub(in crate::records) fn next_line(&mut self) -> Option<(Place, Result<String, LineFault>, bool)> {
        if self.ended {
            return None;
        }
        let mut bytes = vec![];
        let read = (&mut self.input).take(LONGEST_LINE).read_until(b'\n', &mut bytes);
        let place = Place { file: self.file.clone(), line: self.line + 1, offset: self.offset };
        let mut length = match read {
            Ok(0) => {
                self.ended = true;
                return None;
            }
            Ok(length) => length as u64,
            Err(error) => {
                self.ended = true;
                return Some((place, Err(LineFault::Malformed(format!("the file cannot be read: {error}"))), true));
            }
        };
        let mut last = bytes.last() != Some(&b'\n');
        let too_long = last && length == LONGEST_LINE;
        if too_long {
            match skip_line(&mut self.input) {
                Ok((skipped, ended)) => (length, last) = (length + skipped, !ended),
                Err(_) => self.ended = true,
            }
        }
        // Editors of some systems put a mark of the encoding before the first line, and files may be put behind one another.
        if bytes.starts_with(BYTE_ORDER_MARK) {
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        self.line += 1;
        self.offset += length;
        if !last && !too_long {
            bytes.pop();
        }
        let text = if too_long {
            Err(LineFault::TooLong)
        } else {
            // A character that was cut in two is part of a torn line.
            String::from_utf8(bytes).map_err(|e| {
                if last && e.utf8_error().error_len().is_none() { LineFault::Torn } else { LineFault::NotText }
            })
        };
        Some((place, text, last))
    }
}

/// Passes over the rest of a line; how many bytes, and whether an end of line came.
fn skip_line(input: &mut impl BufRead) -> io::Result<(u64, bool)> {
    let mut skipped = 0;
    loop {
        let (used, found) = match input.fill_buf()? {
            [] => return Ok((skipped, false)),
            buffer => match buffer.iter().position(|b| *b == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), false),
            },
        };
        input.consume(used);
        skipped += used as u64;
        if found {
            return Ok((skipped, true));
        }
    }
}

/// A fault of a line, as a person is told.
pub(in crate::records) fn diagnostic(place: &Place, fault: &LineFault) -> Diagnostic {
    Diagnostic { file: place.file.to_string(), line: place.line, cause: fault.to_string(), help: fault.help() }
}

impl<R: BufRead> Iterator for LogReader<R> {
    type Item = Result<LogItem, Diagnostic>;

    fn next(&mut self) -> Option<Result<LogItem, Diagnostic>> {
        loop {
            let (place, text, last) = self.next_line()?;
            let parsed = match text {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) => parse_line(&text, &place, last),
                Err(fault) => Err(fault),
            };
            return Some(match parsed {
                Err(fault) => Err(diagnostic(&place, &fault)),
                Ok(Parsed::Run(id, run, started)) => {
                    self.runs.insert(id, (Arc::new(run.machine.clone()), run.worker.as_deref().map(Arc::from)));
                    Ok(LogItem::Run { id, run, started })
                }
                Ok(Parsed::Trial(mut entry)) => {
                    (entry.machine, entry.worker) =
                        self.runs.get(&entry.run).cloned().map_or((None, None), |(m, worker)| (Some(m), worker));
                    Ok(LogItem::Trial(entry))
                }
                Ok(Parsed::Compared(compared)) => Ok(LogItem::Compared(compared)),
                Ok(Parsed::Seed(seed)) => Ok(LogItem::Seed(seed)),
                Ok(Parsed::Dropped(worker)) => Ok(LogItem::Dropped(worker)),
            });
        }
    }
}
