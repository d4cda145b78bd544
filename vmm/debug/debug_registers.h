/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The debug registers of x86 (SDM vol. 3B 18.2, APM vol. 2 13.1.1), shared by
 * host and guest: what to put into them, and whose a #DB is. Pure functions.
 *
 * While the host has breakpoints in a vCPU, KVM gives the processor the
 * host's registers (KVM_GUESTDBG_USE_HW_BP) and keeps what the guest writes for
 * KVM_GET_DEBUGREGS; every #DB comes to us. So the guest's breakpoints are
 * put beside the host's, each in its own register, and its share of a #DB is
 * given to it.
 */
#ifndef KVMSCOPE_DEBUG_DEBUG_REGISTERS_H
#define KVMSCOPE_DEBUG_DEBUG_REGISTERS_H

#include <stdbool.h>
#include <stdint.h>

#define DEBUG_SLOTS 4

/* SDM vol. 3B 18.2.3 */
#define DR6_SLOTS UINT64_C(0xf)
#define DR6_BLD   (UINT64_C(1) << 11) /* bus lock; 0 means it was one */
#define DR6_BD                                                                                     \
	(UINT64_C(1) << 13)         /* a debug register was about to be used while DR7.GD was set  \
				     */
#define DR6_BS  (UINT64_C(1) << 14) /* single step */
#define DR6_BT  (UINT64_C(1) << 15) /* task switch */
#define DR6_RTM (UINT64_C(1) << 16) /* 0 means in a transaction */
/* All its bits that are 1 where nothing happened. */
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
	BREAKPOINT_WRITE = 1,   /* a trap, after it, as the next two */
	BREAKPOINT_IO = 2,      /* with CR4.DE */
	BREAKPOINT_ACCESS = 3,  /* read or write */
};

struct breakpoint {
	uint64_t address; /* linear; a multiple of length */
	enum breakpoint_kind kind;
	uint8_t length; /* bytes: 1, 2, 4 or 8; 1 to execute */
};

/* As the guest sees them: what KVM_GET_DEBUGREGS tells. */
struct debug_registers {
	uint64_t address[DEBUG_SLOTS];
	uint64_t dr6, dr7;
};

/* What is in the processor's registers while the guest runs, and whose it is. */
struct debug_plan {
	uint64_t address[DEBUG_SLOTS];
	uint64_t dr7;
	uint8_t host, guest; /* slots: a bit for each */
};

/* All that was so when a #DB came. */
struct debug_exit {
	uint64_t dr6;
	uint64_t rip, rflags;
	uint64_t guest_dr7; /* as the guest sees it */
	bool stepping;      /* the host asked for a single step that is not done */
	bool guest_steps;   /* RFLAGS.TF was the guest's own when the step began */
};

struct debug_verdict {
	uint8_t host_hits;  /* slots of the host, each hit once */
	uint64_t guest_dr6; /* of the guest's #DB: the bits that are set in it */
	uint64_t guest_low; /* and those that are 0 in it where something happened: DR6_BLD, DR6_RTM
			     */
	bool guest;         /* the guest is to get a #DB */
	bool step_done;     /* the host's single step is */
	/*
	 * One instruction has to get done: else the same host breakpoint would come again, or the
	 * guest's use of a debug register.
	 */
	bool step;
	/* Of these, one that RFLAGS.RF does it for. The others are run with debug_plan_for_step().
	 */
	bool resume;
};

/* Can the processor do it? SDM vol. 3B 18.2.5: lengths, and addresses aligned to them. */
bool breakpoint_valid(const struct breakpoint *breakpoint);

/* Which slots DR7 has switched on (L or G): a bit for each. */
uint8_t dr7_slots(uint64_t dr7);

/* What DR7 says of SLOT, which ADDRESS is in. */
struct breakpoint dr7_breakpoint(uint64_t dr7, unsigned int slot, uint64_t address);

/*
 * The guest's breakpoints and those of HOST in the slots of HOST_SLOTS
 * together. Where both want one, the host has it. DR7.GD is set if there is
 * any of the host's, so that we learn of what the guest changes.
 */
struct debug_plan debug_plan_merge(const struct debug_registers *guest,
				   const struct breakpoint *host, uint8_t host_slots);

/*
 * The same for one instruction at RIP that must get done: without breakpoints
 * that execute it, and with DR7.GD only if it is the guest's.
 */
struct debug_plan debug_plan_for_step(const struct debug_plan *plan, uint64_t rip,
				      uint64_t guest_dr7);

/*
 * Whose is it? PLAN is what was in the registers. A trap of the guest's goes
 * first: a breakpoint of the host's at the instruction behind it comes again
 * when the guest's handler has returned. Where both have a breakpoint at an instruction,
 * both get it at once, also beside such a trap, since the guest's handler then returns with
 * RFLAGS.RF.
 */
struct debug_verdict debug_classify(const struct debug_plan *plan, const struct debug_exit *exit);

/* The guest's registers as it finds them in the handler of the #DB that VERDICT says it gets. */
struct debug_registers debug_after_guest_exception(const struct debug_registers *guest,
						   const struct debug_verdict *verdict);

#endif
