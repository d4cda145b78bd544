/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One frame of a guest's stack at a time. All of it runs on a vCPU thread at
 * the stop: no lock, allocation or system call; every address is checked.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_UNWIND_STEP_H
#define KVMSCOPE_GUEST_UNWIND_UNWIND_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/linux/kernel_orc.h"
#include "vmm/guest/linux/user_map.h"
#include "vmm/guest/unwind/cfi_table.h"

/* Kernel text, modules and what the kernel generates all lie in the last 2 GiB. */
#define KERNEL_TEXT_START 0xffffffff80000000ull
#define USER_TEXT_END     0x0100000000000000ull /* with 5-level paging */
#define KERNEL_STACK_SIZE                                                                          \
	16384 /* bytes: THREAD_SIZE is that or a multiple, and stacks are aligned to it */
#define PT_REGS_SIZE 168

/* Reads of guest virtual memory that keep the translation of the last page. */
struct stack_reader {
	const struct guest_view *view;
	const struct guest_paging *paging;
	uint64_t page;       /* GVA of the page kept, 1 if none is */
	const uint8_t *here; /* it in this process, or NULL where it must be read by the view */
	uint64_t gpa;        /* of it */
};

void stack_reader_start(struct stack_reader *reader, const struct guest_view *view,
			const struct guest_paging *paging);

/* Reads the 8 or, for WIDTH 4, 4 bytes at GVA, which must be aligned to them. False: not readable.
 */
bool stack_read(struct stack_reader *reader, uint64_t gva, unsigned int width, uint64_t *value);

enum unwind_result {
	UNWIND_CALLER, /* the state is the caller's */
	UNWIND_USER,   /* the state is that of the user program that entered the kernel */
	UNWIND_END,    /* the frame was the outermost */
	UNWIND_LOST,   /* the frame's caller can not be told */
};

struct unwind_state {
	struct stack_reader stack;
	uint64_t ip, sp, bp;
	bool signal;       /* ip was interrupted; else it stands behind a call */
	bool user_is_long; /* in user space: in 64-bit mode */
	/* The last whole set of registers that was found, by enum dwarf_register, as long as no
	 * call lies between. */
	bool has_registers;
	uint64_t registers[DWARF_RIP];
	bool unknown_kernel; /* it may have no frame pointers */
	/* In user space. */
	uint64_t bx;
	bool bp_lost, bx_lost; /* no rule says where it is */
	bool proven_later;     /* callers that are guessed by whoever reads the chain */
	struct user_map *map;  /* NULL: what is mapped is not known */
	const struct user_mapping *mapping; /* that the code of ip is in; NULL: not known */
};

/* By ORC, or by the frame pointer where no table describes the code (as the kernel itself does). */
enum unwind_result unwind_step_orc(struct unwind_state *state, const struct kernel_orc *unwinder);

/* A kernel built with frame pointers, with its marked pointers to struct pt_regs. */
enum unwind_result unwind_step_frame_pointer(struct unwind_state *state);

/* A user program built with frame pointers; WIDTH is 8, or 4 in 32-bit code. */
enum unwind_result unwind_step_user_frame_pointer(struct unwind_state *state, unsigned int width);

/* The frame of code that was interrupted and has frame pointers, by the code's bytes. */
enum unwind_frame {
	UNWIND_FRAME_MADE,   /* bp is its own */
	UNWIND_FRAME_NONE,   /* not yet, or no more: the return address is at sp, and bp is the
				caller's */
	UNWIND_FRAME_PUSHED, /* bp is the caller's; 8 bytes are at sp, the return address behind
				them */
	UNWIND_FRAME_UNKNOWN,
};

/* Of 64-bit code at ip, and of 32-bit code, whose instructions of this kind have the same bytes but
 * REX. */
enum unwind_frame unwind_frame_of(const struct unwind_state *state);

/* The state is that of the user program that was interrupted: what is its code in? */
void unwind_enter_user(struct unwind_state *state);

/* User code: in 64-bit mode by the table of its image, or as a signal frame; else by frame
 * pointers. */
enum unwind_result unwind_step_user(struct unwind_state *state);

/* By RULE, which describes the code of ip: any but CFI_CFA_NONE. */
enum unwind_result unwind_step_cfi(struct unwind_state *state, const struct cfi_rule *rule);

/* Is the code before ADDRESS a call: e8 with an offset, or ff /2 in any of its lengths? */
bool unwind_is_after_call(const struct unwind_state *state, uint64_t address);

/*
 * Is nothing on a task's stack at SP but the struct pt_regs with which it begins: of the entry from
 * user space, of a kernel thread all zero? Others may have any number there.
 */
bool unwind_is_at_entry(uint64_t sp);

/* Takes over ip, sp, bp and so on from the struct pt_regs at REGS. UNWIND_CALLER, UNWIND_USER or
 * UNWIND_LOST.
 */
enum unwind_result unwind_from_registers(struct unwind_state *state, uint64_t regs);

/* The same from the five words that the CPU pushes, at FRAME. */
enum unwind_result unwind_from_interrupt_frame(struct unwind_state *state, uint64_t frame);

#endif
