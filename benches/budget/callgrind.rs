//! What a program can ask of callgrind, while it runs under it: an instruction sequence that does nothing elsewhere.
//! Valgrind's manual calls these client requests.

use core::ffi::CStr;
use std::ffi::CString;

const RUNNING_ON_VALGRIND: usize = 0x1001;
const CALLGRIND: usize = ((b'C' as usize) << 24) | ((b'T' as usize) << 16);
const TOGGLE_COLLECT: usize = CALLGRIND + 2;
const DUMP_STATS_AT: usize = CALLGRIND + 3;

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ask(request: usize, argument: usize) -> usize {
    let arguments = [request, argument, 0, 0, 0, 0];
    let answer: usize;
    // SAFETY: the rotations turn rdi once around and leave it as it was; the rest is an exchange of rbx with itself.
    // Under valgrind the sequence reads the array and writes rdx.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") 0_usize => answer,
        );
    }
    answer
}

#[cfg(not(target_arch = "x86_64"))]
fn ask(_request: usize, _argument: usize) -> usize {
    0
}

/// Whether this program runs under valgrind.
pub fn is_running() -> bool {
    ask(RUNNING_ON_VALGRIND, 0) > 0
}

/// Begins or ends counting, for the calling thread. The program must be started with `--collect-atstart=no`.
#[inline(always)]
pub fn toggle() {
    ask(TOGGLE_COLLECT, 0);
}

/// Writes what was counted under a name, and sets the counts to 0. No other thread may count meanwhile.
pub fn dump(name: &str) {
    let name = CString::new(name).expect("no zero");
    let name: &CStr = &name;
    ask(DUMP_STATS_AT, name.as_ptr().addr());
}

/// Counts one thing.
#[inline(never)]
pub fn counted(name: &str, work: impl FnOnce()) {
    toggle();
    work();
    toggle();
    dump(name);
}
