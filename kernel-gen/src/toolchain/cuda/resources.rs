//! What `ptxas -v` says of kernels: registers, shared memory, spills, and remarks on lost performance.

/// What the assembler says of one kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resources {
    /// The kernel's name in the code.
    pub kernel: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Static shared memory of a block.
    pub shared_bytes: u32,
    /// Local memory of a thread.
    pub stack_bytes: u32,
    /// Bytes that a thread's spills write.
    pub spill_store_bytes: u32,
    /// Bytes that a thread's spills read.
    pub spill_load_bytes: u32,
}

impl Resources {
    /// Whether registers went to local memory.
    pub fn spills(&self) -> bool {
        self.spill_store_bytes + self.spill_load_bytes > 0
    }
}

/// What the assembler printed, read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AssemblerLog {
    /// What each kernel uses, in the order of the log.
    pub kernels: Vec<Resources>,
    /// Remarks, most often on performance: `(C7511) Potential Performance Loss: wgmma.mma_async instructions are
    /// serialized due to ...`.
    pub remarks: Vec<String>,
}

impl AssemblerLog {
    /// Whether the assembler put the asynchronous matrix instructions of a kernel one after the other (C7510 to C7519),
    /// which costs most of their speed.
    pub fn serialises_wgmma(&self) -> bool {
        self.remarks.iter().any(|r| r.contains("wgmma") && r.contains("serialized"))
    }

    /// Reads the log of `ptxas -v`, as `nvcc` and NVRTC pass it on.
    pub fn parse(log: &str) -> AssemblerLog {
        let mut all = AssemblerLog::default();
        for line in log.lines() {
            // NVRTC writes `ptxas         .     0 bytes stack frame`, where ptxas itself indents.
            let line = line.trim();
            let line = line.strip_prefix("ptxas").map_or(line, str::trim_start);
            let (kind, text) = match line.split_once(':') {
                Some((kind, text)) if matches!(kind.trim_end(), "info" | "warning") => (kind.trim_end(), text.trim()),
                _ => ("", line.trim_start_matches('.').trim_start()),
            };
            if let Some(name) = text.strip_prefix("Compiling entry function '") {
                let kernel = name.split('\'').next().unwrap_or_default().to_string();
                all.kernels.push(Resources { kernel, ..Resources::default() });
            } else if let Some(kernel) = all.kernels.last_mut()
                && (text.starts_with("Used ") || text.contains("bytes stack frame"))
            {
                for part in text.split(',') {
                    let part = part.trim();
                    note(kernel, part.trim_start_matches("Used ").trim_start_matches("used "));
                }
            } else if kind == "warning" || text.starts_with("(C") || text.contains("Performance Loss") {
                all.remarks.push(text.to_string());
            }
        }
        all
    }
}

/// Takes in `72 registers`, `4096 bytes smem` and the like.
fn note(kernel: &mut Resources, part: &str) {
    let Some((number, what)) = part.split_once(' ') else { return };
    let Ok(number) = number.parse() else { return };
    match what {
        "registers" => kernel.registers = number,
        "barriers" => kernel.barriers = number,
        "bytes smem" => kernel.shared_bytes = number,
        "bytes stack frame" => kernel.stack_bytes = number,
        "bytes spill stores" => kernel.spill_store_bytes = number,
        "bytes spill loads" => kernel.spill_load_bytes = number,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_ptxas_is_read() {
        let log = "\
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to the presence of \
                   Extern calls in the function 'gemm'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
    304 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers, 304 bytes cumulative stack size, 4096 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 14.479 ms
ptxas info    : Compiling entry function 'copy' for 'sm_90a'
ptxas info    : Function properties for copy
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas warning : Value of threads per SM for entry copy is out of range. .minnctapersm will be ignored
";
        let read = AssemblerLog::parse(log);
        assert!(read.serialises_wgmma());
        assert_eq!(read.remarks.len(), 2);
        assert!(read.remarks[1].starts_with("Value of threads per SM"));
        let gemm = Resources {
            kernel: "gemm".to_string(),
            registers: 168,
            barriers: 2,
            shared_bytes: 4096,
            stack_bytes: 304,
            spill_store_bytes: 16,
            spill_load_bytes: 24,
        };
        let copy = Resources { kernel: "copy".to_string(), registers: 8, ..Resources::default() };
        assert!(gemm.spills() && !copy.spills());
        assert_eq!(read.kernels, [gemm, copy]);
    }

    #[test]
    fn nvrtc_passes_the_log_on_with_other_indents() {
        let log = "\
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 4096 bytes smem, 360 bytes cmem[0]
";
        let read = AssemblerLog::parse(log);
        assert_eq!(read.kernels.len(), 1);
        let k = &read.kernels[0];
        assert_eq!((k.registers, k.barriers, k.shared_bytes), (10, 1, 4096));
        assert_eq!((k.stack_bytes, k.spill_store_bytes, k.spill_load_bytes), (8, 4, 4));
        assert_eq!(AssemblerLog::parse("nonsense\nptxas\n:\n, ,"), AssemblerLog::default());
    }
}
