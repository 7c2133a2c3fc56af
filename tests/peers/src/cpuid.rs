//! Hides AVX-512 from a library that has no setting for it.
//!
//! ONNX Runtime asks the processor itself what it can do. `shim/mask_cpuid.py` makes a copy of the library in which each
//! `cpuid` is an undefined instruction of the same length; the handler here answers it, without the bits of AVX-512.

use std::arch::x86_64::__cpuid_count;

/// `ud2`, and its length.
const UNDEFINED: [u8; 2] = [0x0f, 0x0b];

/// Bits of leaf 7 that stand for AVX-512 in one of its forms, in `ebx`, `ecx` and `edx`, after Intel's manual, volume 2,
/// table 3-8: F, DQ, IFMA, PF, ER, CD, BW, VL; VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; 4VNNIW, 4FMAPS, VP2INTERSECT, FP16.
const LEAF_7: [u32; 3] = [
    1 << 16 | 1 << 17 | 1 << 21 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 30 | 1 << 31,
    1 << 1 | 1 << 6 | 1 << 11 | 1 << 12 | 1 << 14,
    1 << 2 | 1 << 3 | 1 << 8 | 1 << 23,
];

/// BF16, in `eax` of leaf 7, part 1.
const LEAF_7_1: u32 = 1 << 5;

/// From now on an undefined instruction is answered as a `cpuid` of a processor without AVX-512.
pub(crate) fn answer_without_avx512() {
    // SAFETY: the action is complete, and the handler uses nothing that a signal may not.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut());
    }
}

/// What the processor says, without AVX-512: `eax`, `ebx`, `ecx`, `edx`.
fn masked(leaf: u32, part: u32) -> [u32; 4] {
    let said = __cpuid_count(leaf, part);
    match (leaf, part) {
        (7, 0) => [said.eax, said.ebx & !LEAF_7[0], said.ecx & !LEAF_7[1], said.edx & !LEAF_7[2]],
        (7, 1) => [said.eax & !LEAF_7_1, said.ebx, said.ecx, said.edx],
        _ => [said.eax, said.ebx, said.ecx, said.edx],
    }
}

extern "C" fn handler(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes the interrupted thread's registers, which belong to this handler until it returns; the
    // instruction pointer is at code that was just fetched.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as *const u8;
        if [at.read(), at.add(1).read()] != UNDEFINED {
            // Some other instruction that this processor lacks: it fails again, and ends the program.
            libc::signal(libc::SIGILL, libc::SIG_DFL);
            return;
        }
        let (leaf, part) = (registers[libc::REG_RAX as usize] as u32, registers[libc::REG_RCX as usize] as u32);
        let answer = masked(leaf, part);
        for (register, value) in [libc::REG_RAX, libc::REG_RBX, libc::REG_RCX, libc::REG_RDX].into_iter().zip(answer) {
            registers[register as usize] = i64::from(value);
        }
        registers[libc::REG_RIP as usize] += UNDEFINED.len() as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::arch::asm;

    #[test]
    fn an_undefined_instruction_is_answered_as_cpuid_without_avx512() {
        answer_without_avx512();
        let (eax, ebx, ecx, edx): (u32, u32, u32, u32);
        // SAFETY: the handler writes the four registers and nothing else; `rbx` is kept, which the compiler needs.
        unsafe {
            asm!(
                "mov {keep}, rbx", "ud2", "mov {ebx:e}, ebx", "mov rbx, {keep}",
                keep = out(reg) _, ebx = out(reg) ebx,
                inout("eax") 7 => eax, inout("ecx") 0 => ecx, out("edx") edx,
            );
        }
        assert_eq!([eax, ebx, ecx, edx], masked(7, 0));
        assert_eq!(ebx & 1 << 16, 0, "AVX-512 F is hidden");
        assert_eq!(ebx & 1 << 5, __cpuid_count(7, 0).ebx & 1 << 5, "AVX2 is not");
    }
}
