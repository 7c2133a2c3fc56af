//! Sessions and workers as processes around a real server.
//!
//! The server is `nats-server`, or what `KERNEL_GEN_TEST_NATS` names; `tests/nats.sh` fetches one. Where it is missing the tests
//! say so. `KERNEL_GEN_KILLS=20 cargo test -p kernel-gen-fleet --test fleet -- --nocapture` kills more,
//! `KERNEL_GEN_LOAD_S=30` shows how many replies a session takes, and `KERNEL_GEN_FUZZ_S=600` sends hostile messages for longer.

mod faulty;
mod hostile;
mod killed;
mod load;
mod secrets;
mod server;
mod stranger;
