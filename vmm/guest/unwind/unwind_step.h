/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwinds one frame of a guest's stack at a time. Everything here runs on a vCPU thread during the
 * stop: no lock, allocation or system call; every address is checked.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_UNWIND_STEP_H
#define KVMSCOPE_GUEST_UNWIND_UNWIND_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/linux/orc_table.h"
#include "vmm/guest/linux/user_map.h"
#include "vmm/guest/unwind/cfi_table.h"

/* Kernel text, modules and generated code are all in the last 2 GiB. */
#define KERNEL_TEXT_START 0xffffffff80000000ull
#define KERNEL_START_32   0xc0000000ull /* of a 32-bit kernel: PAGE_OFFSET, with VMSPLIT_3G */
#define USER_TEXT_END     0x0100000000000000ull /* with 5-level paging */
/* THREAD_SIZE is this or a multiple, and stacks are aligned to it. */
#define KERNEL_STACK_SIZE 16384
#define PT_REGS_SIZE      168

/* The same of a 32-bit kernel (arch/x86/include/asm/page_32_types.h, ptrace.h). */
#define KERNEL_STACK_SIZE_32 8192
#define PT_REGS_SIZE_32      68

/* Reads of guest virtual memory with a cache of the last page. */
struct stack_reader {
	const struct guest_view *view;
	const struct guest_paging *paging;
	uint64_t page;         /* GVA of the cached page; 1: none */
	const uint8_t *mapped; /* the page in this process; NULL: only the view can read it */
	uint64_t gpa;          /* of the page */
	uint64_t end;          /* GVA after the highest word that was requested */
};

void stack_reader_start(struct stack_reader *reader, const struct guest_view *view,
			const struct guest_paging *paging);

/* Reads WIDTH (4 or 8) bytes at GVA. False: unreadable, or not aligned. */
bool stack_read(struct stack_reader *reader, uint64_t gva, unsigned int width, uint64_t *value);

enum unwind_result {
	UNWIND_CALLER, /* the state is the caller's */
	UNWIND_USER,   /* the state is that of the user program that entered the kernel */
	UNWIND_END,    /* the frame was the outermost */
	UNWIND_LOST,   /* the frame's caller is unknown */
};

struct unwind_state {
	struct stack_reader stack;
	uint64_t ip, sp, bp;
	unsigned int word; /* bytes of a pointer of the kernel */
	bool signal;       /* ip was interrupted; else it follows a call */
	bool user_is_long; /* in user space: in 64-bit mode */
	/* The last complete set of registers, by enum dwarf_register; valid up to the next call. */
	bool has_registers;
	uint64_t registers[DWARF_RIP];
	bool unknown_kernel; /* may have no frame pointers */
	bool guess_early;    /* as in struct guest_callchain */
	/* In user space. */
	uint64_t bx;
	bool bp_lost, bx_lost;              /* the value is unknown */
	bool checked_later;                 /* the reader of the chain checks guessed callers */
	struct user_map *map;               /* NULL: mappings are unknown */
	const struct user_mapping *mapping; /* of the code at ip; NULL: unknown */
};

/* Sets what is known of interrupted code: its registers. */
void unwind_start(struct unwind_state *state, const struct guest_registers *registers);

/* By ORC, or by the frame pointer for code without a table, as the kernel itself does. */
enum unwind_result unwind_step_orc(struct unwind_state *state, const struct kernel_orc *orc);

/* A kernel built with frame pointers, with its marked pointers to struct pt_regs. */
enum unwind_result unwind_step_frame_pointer(struct unwind_state *state);

/* A user program built with frame pointers; WIDTH is 8, or 4 in 32-bit code. */
enum unwind_result unwind_step_user_frame_pointer(struct unwind_state *state, unsigned int width);

/* The frame of interrupted code that uses frame pointers, by the code's bytes. */
enum unwind_frame {
	UNWIND_FRAME_MADE,   /* bp is its own */
	UNWIND_FRAME_NONE,   /* not yet, or no longer: return address at sp, bp is the caller's */
	UNWIND_FRAME_PUSHED, /* bp is the caller's; return address at sp + 8 */
	UNWIND_FRAME_UNKNOWN,
};

/* For 64-bit code at ip, and 32-bit code, which has the same instructions without REX. */
enum unwind_frame unwind_frame_of(const struct unwind_state *state);

/* Starts the walk of the user program that was interrupted. */
void unwind_enter_user(struct unwind_state *state);

/* User code: in 64-bit mode by the table of its image or as a signal frame; else by frame pointers.
 */
enum unwind_result unwind_step_user(struct unwind_state *state);

/* By the RULE for the code at ip, which is not CFI_CFA_NONE. */
enum unwind_result unwind_step_cfi(struct unwind_state *state, const struct cfi_rule *rule);

/* Is the code before ADDRESS a call: e8 with an offset, or ff /2 in any of its lengths? */
bool unwind_is_after_call(const struct unwind_state *state, uint64_t address);

/*
 * Is sp at the struct pt_regs at the top of a task's stack, which the entry from user space pushes
 * (all zero for a kernel thread)? Other stacks may have anything there.
 */
bool unwind_is_at_entry(const struct unwind_state *state);

/*
 * Continues with the registers in the struct pt_regs at REGS. UNWIND_CALLER, UNWIND_USER or
 * UNWIND_LOST.
 */
enum unwind_result unwind_from_registers(struct unwind_state *state, uint64_t regs);

/* The same with the five words at FRAME that the CPU of a 64-bit kernel pushes. */
enum unwind_result unwind_from_interrupt_frame(struct unwind_state *state, uint64_t frame);

#endif
