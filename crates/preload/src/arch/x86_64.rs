//! x86-64.

macro_rules! go_on {
    // The stack pointer is a seventh argument.
    (5, $body:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            "mov r9, qword ptr [rsp]",
            "lea rax, [rsp + 8]",
            "push rax",
            ".cfi_adjust_cfa_offset 8",
            "call {body}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "ret",
            ".cfi_endproc",
            body = sym $body,
        )
    };
    ($count:tt, $body:path) => { ::poundlock_linux::go_on! { $count, $body } };
}

macro_rules! cancellable_wait {
    ($prepare:path, $body:path, $finish:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 56",
            ".cfi_adjust_cfa_offset 56",
            "mov qword ptr [rsp], rdi",
            "mov qword ptr [rsp + 8], rsi",
            "mov qword ptr [rsp + 16], rdx",
            "mov qword ptr [rsp + 24], rcx",
            "mov edi, {deferred}",
            "lea rsi, [rsp + 40]",
            "call qword ptr [rip + pthread_setcanceltype@GOTPCREL]",
            $crate::arch::load!(),
            "mov r8, qword ptr [rsp + 56]",
            "lea r9, [rsp + 64]",
            "call {prepare}",
            "mov qword ptr [rsp + 32], rax",
            "test rax, rax",
            "jnz 2f",
            "call qword ptr [rip + pthread_testcancel@GOTPCREL]",
            $crate::arch::load!(),
            "mov r8, qword ptr [rsp + 56]",
            "lea r9, [rsp + 64]",
            "call {body}",
            "mov dword ptr [rsp + 48], eax",
            "cmp eax, {cancel}",
            "jne 3f",
            "call qword ptr [rip + pthread_testcancel@GOTPCREL]",
            // Not cancelled after all: a spurious wake-up.
            "mov dword ptr [rsp + 48], 0",
            "jmp 3f",
            "2:",
            $crate::arch::load!(),
            "call qword ptr [rsp + 32]",
            "mov rdi, qword ptr [rsp]",
            "mov rsi, qword ptr [rsp + 8]",
            "mov edx, eax",
            "mov rcx, qword ptr [rsp + 56]",
            "call {finish}",
            "mov dword ptr [rsp + 48], eax",
            "3:",
            "mov edi, dword ptr [rsp + 40]",
            "xor esi, esi",
            "call qword ptr [rip + pthread_setcanceltype@GOTPCREL]",
            "mov eax, dword ptr [rsp + 48]",
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
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
        ::core::arch::naked_asm!("jmp qword ptr [rip + {word}]", word = sym $word)
    };
}

/// Makes room on the stack for four arguments, and puts them there.
macro_rules! save {
    () => {
        concat!(
            "sub rsp, 40\n.cfi_adjust_cfa_offset 40\n",
            "mov qword ptr [rsp], rdi\nmov qword ptr [rsp + 8], rsi\n",
            "mov qword ptr [rsp + 16], rdx\nmov qword ptr [rsp + 24], rcx"
        )
    };
}
/// The arguments from there, as often as they are passed.
macro_rules! load {
    () => {
        concat!(
            "mov rdi, qword ptr [rsp]\nmov rsi, qword ptr [rsp + 8]\n",
            "mov rdx, qword ptr [rsp + 16]\nmov rcx, qword ptr [rsp + 24]"
        )
    };
}
/// Takes the room back.
macro_rules! unsave {
    () => {
        "add rsp, 40\n.cfi_adjust_cfa_offset -40"
    };
}

macro_rules! find_and_jump_by {
    ($word:path, $find:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::save!(),
            "mov qword ptr [rsp + 32], r8",
            "lea rdi, [rip + {word}]",
            "call {find}",
            $crate::arch::load!(),
            "mov r8, qword ptr [rsp + 32]",
            $crate::arch::unsave!(),
            "jmp qword ptr [rip + {word}]",
            ".cfi_endproc",
            word = sym $word,
            find = sym $find,
        )
    };
}

macro_rules! counted_block {
    (@ cancels) => {
        concat!("call qword ptr [rip + pthread_testcancel@GOTPCREL]\n", $crate::arch::load!())
    };
    (@) => { "" };
    ($real:path, $prepare:path, $finish:path $(, $cancels:ident)?) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::save!(),
            $crate::arch::counted_block!(@ $($cancels)?),
            "mov r8, qword ptr [rsp + 40]",
            "lea r9, [rsp + 48]",
            "call {prepare}",
            "test eax, eax",
            "jz 2f",
            $crate::arch::load!(),
            // The first word of what was looked up is the function's address.
            "call qword ptr [rip + {real} + {found}]",
            "mov dword ptr [rsp], eax",
            "mov edi, eax",
            "call {finish}",
            "mov eax, dword ptr [rsp]",
            "2:",
            $crate::arch::unsave!(),
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
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "call {real}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "and esi, {keep}",
            "jmp rax",
            ".cfi_endproc",
            real = sym $real,
            keep = const $keep,
        )
    };
}

macro_rules! look_up {
    ($own:path, $real:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 24",
            ".cfi_adjust_cfa_offset 24",
            "mov qword ptr [rsp], rdi",
            "mov qword ptr [rsp + 8], rsi",
            "mov qword ptr [rsp + 16], rdx",
            "mov rcx, qword ptr [rsp + 24]",
            "call {own}",
            "test rax, rax",
            "jnz 2f",
            "call {real}",
            "mov rdi, qword ptr [rsp]",
            "mov rsi, qword ptr [rsp + 8]",
            "mov rdx, qword ptr [rsp + 16]",
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
            "jmp rax",
            "2:",
            ".cfi_adjust_cfa_offset 24",
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
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
            "cmp rdi, {futex}",
            "jne 3f",
            "sub rsp, 56",
            ".cfi_adjust_cfa_offset 56",
            "mov qword ptr [rsp + 8], rdi",
            "mov qword ptr [rsp + 16], rsi",
            "mov qword ptr [rsp + 24], rdx",
            "mov qword ptr [rsp + 32], rcx",
            "mov qword ptr [rsp + 40], r8",
            "mov qword ptr [rsp + 48], r9",
            "mov r8, qword ptr [rsp + 56]",
            "lea r9, [rsp + 64]",
            "call {before}",
            // The seventh argument, where a call finds it.
            "mov rcx, qword ptr [rsp + 64]",
            "mov qword ptr [rsp], rcx",
            "mov rdi, qword ptr [rsp + 8]",
            "mov rsi, qword ptr [rsp + 16]",
            "mov rdx, qword ptr [rsp + 24]",
            "mov rcx, qword ptr [rsp + 32]",
            "mov r8, qword ptr [rsp + 40]",
            "mov r9, qword ptr [rsp + 48]",
            "test eax, eax",
            "jz 2f",
            "call qword ptr [rip + {real} + {found}]",
            "mov qword ptr [rsp + 8], rax",
            "mov rdi, rax",
            "call {after}",
            "mov rax, qword ptr [rsp + 8]",
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
            "ret",
            "2:",
            ".cfi_adjust_cfa_offset 56",
            "add rsp, 56",
            ".cfi_adjust_cfa_offset -56",
            "3:",
            "jmp qword ptr [rip + {real} + {found}]",
            ".cfi_endproc",
            futex = const ::libc::SYS_futex,
            before = sym $before,
            after = sym $after,
            real = sym $real,
            found = const $crate::real::Real::FOUND,
        )
    };
}

const _: () = assert!(
    libc::SYS_semop == libc::SYS_semget + 1 && libc::SYS_semctl == libc::SYS_semget + 2,
    "one comparison knows three calls"
);

macro_rules! system_call {
    ($semaphores:path, $next:path, $errno:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            // No caller expects anything of these two registers. Callers of functions like this one may
            // expect rax to be read.
            "lea r10, [rdi - {first}]",
            "cmp r10, 2",
            "jbe {semaphores}",
            "cmp rdi, {semtimedop}",
            "je {semaphores}",
            "mov r11, qword ptr [rip + {next}]",
            "test r11, r11",
            "jz 2f",
            "jmp r11",
            "2:",
            "mov rax, rdi",
            "mov rdi, rsi",
            "mov rsi, rdx",
            "mov rdx, rcx",
            "mov r10, r8",
            "mov r8, r9",
            "mov r9, qword ptr [rsp + 8]",
            "syscall",
            "cmp rax, -4095",
            "jae 3f",
            "ret",
            "3:",
            "neg eax",
            "push rax",
            ".cfi_adjust_cfa_offset 8",
            "call {errno}",
            "pop rcx",
            ".cfi_adjust_cfa_offset -8",
            "mov dword ptr [rax], ecx",
            "mov rax, -1",
            "ret",
            ".cfi_endproc",
            first = const ::libc::SYS_semget,
            semtimedop = const ::libc::SYS_semtimedop,
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
            "sub rsp, 40",
            ".cfi_adjust_cfa_offset 40",
            "mov qword ptr [rsp], rdi",
            "mov qword ptr [rsp + 8], rsi",
            "mov qword ptr [rsp + 16], rdx",
            "lea rcx, [rsp + 40]",
            "lea r8, [rsp + 24]",
            "call {enter}",
            "mov rdi, qword ptr [rsp]",
            "mov rsi, qword ptr [rsp + 8]",
            "mov rdx, qword ptr [rsp + 16]",
            "call rax",
            "lea rdi, [rsp + 40]",
            "call {leave}",
            "add rsp, 40",
            ".cfi_adjust_cfa_offset -40",
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
        // SAFETY: reads the offset from the GOT and the thread pointer; touches neither stack nor flags' users.
        unsafe {
            ::core::arch::asm!(
                "mov {block}, qword ptr fs:[0]",
                concat!("add {block}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                block = out(reg) block,
                options(pure, readonly, nostack),
            );
        }
        block
    }};
}

pub(crate) use {
    cancellable_wait, counted_block, counted_call, find_and_jump_by, go_on, jump_by, load, look_up, open,
    save, system_call, thread_block, unsave, wrap_handler,
};
