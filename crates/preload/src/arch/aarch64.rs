//! aarch64. The return address is in `x30`, so that a caller's stack pointer is the one on entry; `x9` to
//! `x17` belong to nobody across a call, and `x16` is what a jump to another function may go by. Addresses that
//! another thread may just have found are read with acquire ordering: a load behind a jump may come before the
//! one that the jump went by.

macro_rules! go_on {
    (5, $body:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            "mov x5, x30",
            "mov x6, sp",
            "b {body}",
            ".cfi_endproc",
            body = sym $body,
        )
    };
    ($count:tt, $body:path) => { ::poundlock_linux::go_on! { $count, $body } };
}

/// Makes a frame with room for that many bytes, of which the first 16 are the frame's record.
macro_rules! frame {
    ($bytes:literal) => {
        concat!(
            "stp x29, x30, [sp, #-",
            $bytes,
            "]!\n.cfi_def_cfa_offset ",
            $bytes,
            "\n",
            ".cfi_offset 29, -",
            $bytes,
            "\n.cfi_offset 30, -",
            $bytes,
            " + 8\nmov x29, sp"
        )
    };
}
/// Takes it back.
macro_rules! unframe {
    ($bytes:literal) => {
        concat!(
            "ldp x29, x30, [sp], #",
            $bytes,
            "\n",
            ".cfi_restore 30\n.cfi_restore 29\n.cfi_def_cfa_offset 0"
        )
    };
}
/// Puts four arguments behind the frame's record.
macro_rules! save {
    () => {
        "stp x0, x1, [sp, #16]\nstp x2, x3, [sp, #32]"
    };
}
/// The arguments from there, as often as they are passed.
macro_rules! load {
    () => {
        "ldp x0, x1, [sp, #16]\nldp x2, x3, [sp, #32]"
    };
}

macro_rules! cancellable_wait {
    ($prepare:path, $body:path, $finish:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::frame!(80),
            $crate::arch::save!(),
            "mov w0, #{deferred}",
            "add x1, sp, #56",
            "bl pthread_setcanceltype",
            $crate::arch::load!(),
            "ldr x4, [sp, #8]",
            "add x5, sp, #80",
            "bl {prepare}",
            "str x0, [sp, #48]",
            "cbnz x0, 2f",
            "bl pthread_testcancel",
            $crate::arch::load!(),
            "ldr x4, [sp, #8]",
            "add x5, sp, #80",
            "bl {body}",
            "str w0, [sp, #60]",
            "mov w1, #{cancel}",
            "cmp w0, w1",
            "b.ne 3f",
            "bl pthread_testcancel",
            // Not cancelled after all: a spurious wake-up.
            "str wzr, [sp, #60]",
            "b 3f",
            "2:",
            $crate::arch::load!(),
            "ldr x16, [sp, #48]",
            "blr x16",
            "mov w2, w0",
            "ldp x0, x1, [sp, #16]",
            "ldr x3, [sp, #8]",
            "bl {finish}",
            "str w0, [sp, #60]",
            "3:",
            "ldr w0, [sp, #56]",
            "mov x1, xzr",
            "bl pthread_setcanceltype",
            "ldr w0, [sp, #60]",
            $crate::arch::unframe!(80),
            "ret",
            ".cfi_endproc",
            prepare = sym $prepare,
            body = sym $body,
            finish = sym $finish,
            cancel = const $crate::entry::CANCEL,
            deferred = const $crate::entry::DEFERRED,
        )
    };
}

macro_rules! jump_by {
    ($word:path) => {
        ::core::arch::naked_asm!(
            "adrp x16, {word}",
            "add x16, x16, :lo12:{word}",
            "ldar x16, [x16]",
            "br x16",
            word = sym $word,
        )
    };
}

macro_rules! find_and_jump_by {
    ($word:path, $find:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::frame!(64),
            $crate::arch::save!(),
            "str x4, [sp, #48]",
            "adrp x0, {word}",
            "add x0, x0, :lo12:{word}",
            "bl {find}",
            $crate::arch::load!(),
            "ldr x4, [sp, #48]",
            $crate::arch::unframe!(64),
            "adrp x16, {word}",
            "add x16, x16, :lo12:{word}",
            "ldar x16, [x16]",
            "br x16",
            ".cfi_endproc",
            word = sym $word,
            find = sym $find,
        )
    };
}

/// The address of what was looked up.
macro_rules! found {
    () => {
        "adrp x16, {real}\nadd x16, x16, :lo12:{real}\nldr x16, [x16, #{found}]"
    };
}

macro_rules! counted_block {
    (@ cancels) => { concat!("bl pthread_testcancel\n", $crate::arch::load!()) };
    (@) => { "" };
    ($real:path, $prepare:path, $finish:path $(, $cancels:ident)?) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::frame!(48),
            $crate::arch::save!(),
            $crate::arch::counted_block!(@ $($cancels)?),
            "ldr x4, [sp, #8]",
            "add x5, sp, #48",
            "bl {prepare}",
            "cbz w0, 2f",
            $crate::arch::load!(),
            $crate::arch::found!(),
            "blr x16",
            "str w0, [sp, #16]",
            "bl {finish}",
            "ldr w0, [sp, #16]",
            "2:",
            $crate::arch::unframe!(48),
            "ret",
            ".cfi_endproc",
            prepare = sym $prepare,
            finish = sym $finish,
            real = sym $real,
            found = const $crate::real::Real::FOUND,
        )
    };
}

macro_rules! open {
    ($real:path, $keep:expr) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::frame!(32),
            "stp x0, x1, [sp, #16]",
            "bl {real}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            $crate::arch::unframe!(32),
            "and w1, w1, #{keep}",
            "br x16",
            ".cfi_endproc",
            real = sym $real,
            keep = const $keep as u32,
        )
    };
}

macro_rules! look_up {
    ($own:path, $real:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::frame!(48),
            $crate::arch::save!(),
            "mov x3, x30",
            "bl {own}",
            "cbnz x0, 2f",
            "bl {real}",
            "mov x16, x0",
            $crate::arch::load!(),
            ".cfi_remember_state",
            $crate::arch::unframe!(48),
            "br x16",
            "2:",
            ".cfi_restore_state",
            $crate::arch::unframe!(48),
            "ret",
            ".cfi_endproc",
            own = sym $own,
            real = sym $real,
        )
    };
}

macro_rules! counted_call {
    ($before:path, $after:path, $real:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            "cmp x0, #{futex}",
            "b.ne 3f",
            $crate::arch::frame!(80),
            $crate::arch::save!(),
            "stp x4, x5, [sp, #48]",
            "str x6, [sp, #64]",
            "ldr x4, [sp, #8]",
            "add x5, sp, #80",
            "bl {before}",
            "mov w9, w0",
            $crate::arch::load!(),
            "ldp x4, x5, [sp, #48]",
            "ldr x6, [sp, #64]",
            "cbz w9, 2f",
            $crate::arch::found!(),
            "blr x16",
            "str x0, [sp, #16]",
            "bl {after}",
            "ldr x0, [sp, #16]",
            ".cfi_remember_state",
            $crate::arch::unframe!(80),
            "ret",
            "2:",
            ".cfi_restore_state",
            $crate::arch::unframe!(80),
            "3:",
            $crate::arch::found!(),
            "br x16",
            ".cfi_endproc",
            futex = const ::libc::SYS_futex,
            before = sym $before,
            after = sym $after,
            real = sym $real,
            found = const $crate::real::Real::FOUND,
        )
    };
}

const _: () = {
    let (first, last) = (libc::SYS_semget, libc::SYS_semop);
    let between = [libc::SYS_semctl, libc::SYS_semtimedop];
    assert!(
        last == first + 3 && between[0] == first + 1 && between[1] == first + 2,
        "one comparison knows four calls"
    );
};

macro_rules! system_call {
    ($semaphores:path, $next:path, $errno:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            "sub x16, x0, #{first}",
            "cmp x16, #3",
            "b.hi 1f",
            "b {semaphores}",
            "1:",
            "adrp x16, {next}",
            "add x16, x16, :lo12:{next}",
            "ldar x16, [x16]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "mov x8, x0",
            "mov x0, x1",
            "mov x1, x2",
            "mov x2, x3",
            "mov x3, x4",
            "mov x4, x5",
            "mov x5, x6",
            "svc #0",
            "cmn x0, #4095",
            "b.cs 3f",
            "ret",
            "3:",
            $crate::arch::frame!(32),
            "str x0, [sp, #16]",
            "bl {errno}",
            "ldr w1, [sp, #16]",
            "neg w1, w1",
            "str w1, [x0]",
            "mov x0, #-1",
            $crate::arch::unframe!(32),
            "ret",
            ".cfi_endproc",
            first = const ::libc::SYS_semget,
            semaphores = sym $semaphores,
            next = sym $next,
            errno = sym $errno,
        )
    };
}

macro_rules! wrap_handler {
    ($enter:path, $leave:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::frame!(64),
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "add x3, sp, #64",
            "add x4, sp, #48",
            "bl {enter}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "blr x16",
            "add x0, sp, #64",
            "bl {leave}",
            $crate::arch::unframe!(64),
            "ret",
            ".cfi_endproc",
            enter = sym $enter,
            leave = sym $leave,
        )
    };
}

macro_rules! thread_block {
    ($symbol:literal) => {{
        let block: *const u8;
        // SAFETY: reads the offset from the GOT and the thread pointer; touches neither stack nor flags.
        unsafe {
            ::core::arch::asm!(
                concat!("adrp {offset}, :gottprel:", $symbol),
                concat!("ldr {offset}, [{offset}, :gottprel_lo12:", $symbol, "]"),
                "mrs {block}, tpidr_el0",
                "add {block}, {block}, {offset}",
                offset = out(reg) _,
                block = out(reg) block,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        block
    }};
}

pub(crate) use {
    cancellable_wait, counted_block, counted_call, find_and_jump_by, found, frame, go_on, jump_by, load,
    look_up, open, save, system_call, thread_block, unframe, wrap_handler,
};
