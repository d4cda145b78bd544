/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The debug registers of x86 (SDM vol. 3B 18.2, APM vol. 2 13.1.1), shared by host and guest: their
 * contents, and the owner of each #DB. Pure functions.
 *
 * While the host has breakpoints in a vCPU, KVM loads the host's registers
 * (KVM_GUESTDBG_USE_HW_BP), keeps the guest's writes for KVM_GET_DEBUGREGS, and exits for every
 * #DB. So the registers get both the host's and the guest's breakpoints, and the guest's share of a
 * #DB is delivered to it.
 */
#ifndef KVMSCOPE_DEBUG_DEBUG_REGISTERS_H
#define KVMSCOPE_DEBUG_DEBUG_REGISTERS_H

#include <stdbool.h>
#include <stdint.h>

#define DEBUG_SLOTS 4

/* SDM vol. 3B 18.2.3 */
#define DR6_SLOTS UINT64_C(0xf)
#define DR6_BLD   (UINT64_C(1) << 11) /* bus lock; 0 means that it occurred */
#define DR6_BD    (UINT64_C(1) << 13) /* debug register access while DR7.GD was set */
#define DR6_BS    (UINT64_C(1) << 14) /* single step */
#define DR6_BT    (UINT64_C(1) << 15) /* task switch */
#define DR6_RTM   (UINT64_C(1) << 16) /* 0 means inside a transaction */
/* The value without any event. */
#define DR6_NOTHING UINT64_C(0xffff0ff0)

/* SDM vol. 3B 18.2.4 */
#define DR7_GE    (UINT64_C(1) << 9)
#define DR7_FIXED (UINT64_C(1) << 10)
#define DR7_GD    (UINT64_C(1) << 13)

/* SDM vol. 3A 2.3; RF: vol. 3B 18.3.1.1 */
#define RFLAGS_TF (UINT64_C(1) << 8)
#define RFLAGS_RF (UINT64_C(1) << 16)

/* The R/W field of DR7 */
enum breakpoint_kind {
	BREAKPOINT_EXECUTE = 0, /* a fault, before the instruction */
	BREAKPOINT_WRITE = 1,   /* a trap, after it, as are the next two */
	BREAKPOINT_IO = 2,      /* with CR4.DE */
	BREAKPOINT_ACCESS = 3,  /* read or write */
};

struct breakpoint {
	uint64_t address; /* linear; a multiple of length */
	enum breakpoint_kind kind;
	uint8_t length; /* bytes: 1, 2, 4 or 8; 1 for BREAKPOINT_EXECUTE */
};

/* As the guest sees them, from KVM_GET_DEBUGREGS. */
struct debug_registers {
	uint64_t address[DEBUG_SLOTS];
	uint64_t dr6, dr7;
};

/* Contents of the processor's registers while the guest runs, and the owner of each. */
struct debug_plan {
	uint64_t address[DEBUG_SLOTS];
	uint64_t dr7;
	uint8_t host, guest; /* slots: a bit for each */
};

/* The state at a #DB. */
struct debug_exit {
	uint64_t dr6;
	uint64_t rip, rflags;
	uint64_t guest_dr7; /* as the guest sees it */
	bool stepping;      /* a single step of the host is not finished */
	bool guest_steps;   /* the guest itself had RFLAGS.TF set when the step began */
};

struct debug_verdict {
	uint8_t host_hits;  /* slots of the host, one hit each */
	uint64_t guest_dr6; /* bits set in DR6 for the guest's #DB */
	uint64_t guest_low; /* bits that are 0 for an event: DR6_BLD, DR6_RTM */
	bool guest;         /* the guest gets a #DB */
	bool step_done;     /* the host's single step is finished */
	/* One instruction must complete, or the same host breakpoint, or the guest's access to a
	 * debug register, would repeat. */
	bool step;
	/* RFLAGS.RF is sufficient for that; otherwise use debug_plan_for_step(). */
	bool resume;
};

/* True if the processor supports it. SDM vol. 3B 18.2.5: lengths, and addresses aligned to them. */
bool breakpoint_valid(const struct breakpoint *breakpoint);

/* The slots enabled in DR7 (L or G): a bit for each. */
uint8_t dr7_slots(uint64_t dr7);

/* The breakpoint of SLOT in DR7; ADDRESS is the slot's. */
struct breakpoint dr7_breakpoint(uint64_t dr7, unsigned int slot, uint64_t address);

/* Merges the guest's breakpoints with those of HOST in HOST_SLOTS. The host wins a slot that
 * both use. Sets DR7.GD if the host has any, in order to see the guest's changes. */
struct debug_plan debug_plan_merge(const struct debug_registers *guest,
				   const struct breakpoint *host, uint8_t host_slots);

/* The same plan for one instruction at RIP that must complete: without breakpoints that execute
 * it, and with DR7.GD only if the guest has set it. */
struct debug_plan debug_plan_for_step(const struct debug_plan *plan, uint64_t rip,
				      uint64_t guest_dr7);

/*
 * Determines the owner of a #DB. PLAN was in the registers. A trap of the guest comes first: a
 * breakpoint of the host at the next instruction fires again after the guest's handler returns. If
 * both have a breakpoint at an instruction both get it at once, even beside such a trap, because
 * the guest's handler then returns with RFLAGS.RF.
 */
struct debug_verdict debug_classify(const struct debug_plan *plan, const struct debug_exit *exit);

/* The guest's registers at the entry of its handler for the #DB of VERDICT. */
struct debug_registers debug_after_guest_exception(const struct debug_registers *guest,
						   const struct debug_verdict *verdict);

#endif
