// Generated code of a format that the runtime does not read is one error, which says what to update.
//~ error: kernel-gen 9.0.0 writes generated code in format 3, and this kernel-gen-runtime reads format 2: update the dependency kernel-gen-runtime
kernel_gen_runtime::generated! { format 3, by "kernel-gen 9.0.0";
    pub(super) static ENTRY: v2::Table = v2::table(unknown());
}

fn main() {}
