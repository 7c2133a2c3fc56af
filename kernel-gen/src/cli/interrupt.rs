//! Ctrl-C and SIGTERM.

use crate::tune::session::Stop;
use std::sync::OnceLock;

/// The switch that Ctrl-C turns on, and SIGTERM, by which a batch system takes its machine back. The second one ends the
/// process at once.
pub(super) fn stop_on_interrupt() -> Stop {
    static STOP: OnceLock<Stop> = OnceLock::new();
    STOP.get_or_init(|| {
        let stop = Stop::new();
        let asked = stop.clone();
        // Without a handler, because another one is there or the system has none, the log keeps everything all the same.
        let _ = ctrlc::set_handler(move || ask(&asked, INTERRUPTED));
        #[cfg(unix)]
        if let Ok(mut signals) = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]) {
            let asked = stop.clone();
            std::thread::spawn(move || signals.forever().for_each(|signal| ask(&asked, 128 + signal)));
        }
        stop
    })
    .clone()
}

/// The exit status of a process that Ctrl-C has ended: 128 and the signal's number, as shells say it.
const INTERRUPTED: i32 = 130;

/// Asks a session to stop; where it was asked before, ends the process.
fn ask(stop: &Stop, status: i32) {
    if stop.ask() {
        std::process::exit(status);
    }
    eprintln!("\nstopping: what is under way is finished and kept; Ctrl-C again ends at once");
}
