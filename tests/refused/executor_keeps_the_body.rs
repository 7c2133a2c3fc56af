// An executor cannot keep what it is to run for later, when the buffers are gone.
//~ E0521 method
use kernel_gen_runtime::Executor;

struct Late;

impl Executor for Late {
    fn workers(&self) -> usize {
        2
    }

    fn run(&self, workers: usize, body: &(dyn Fn(usize) + Sync)) {
        std::thread::spawn(move || (0..workers).for_each(body));
    }
}

fn main() {}
