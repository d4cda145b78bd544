/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a sample of somebody else's guest was, and what its addresses in user
 * space were in, told a moment later, when the guest has run on.
 *
 * The task is what a backend saw while the vCPU stood still. What is mapped is looked up in the
 * guest's tree of VMAs as it is now, and holds for then if the page of the address lies now where
 * it lay then: a page of a file belongs to one place of one file until the guest needs its memory
 * for another, and what maps another file there maps another page. An address whose page has moved
 * or gone says nothing, and neither do its callers.
 *
 * Callers are those that frame pointers led to, which may be any number in programs that have none.
 * So a caller is only one behind a call of the code before it (user_call.h), and CHAIN ends at the
 * first that is none.
 *
 * All on the thread of the attachment.
 */
#ifndef KVMSCOPE_ATTACH_USER_SPACE_H
#define KVMSCOPE_ATTACH_USER_SPACE_H

#include "vmm/attach/backend.h"
#include "vmm/attach/sample_views.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/user_map.h"

#define USER_SPACE_TASKS 64

/* A task and the cgroup that it was found in. */
struct user_space_task {
	uint64_t at, set; /* as in struct guest_task */
	uint64_t group;   /* GVA of the struct cgroup that SET was of */
	uint64_t time;    /* ns, of the sample that it was looked up for */
	uint32_t tid;
	uint32_t cgroups; /* generation of the table that has it; 0: nothing was looked up */
	uint64_t cgroup;  /* 0: it could not be told */
};

/* What is known of the sample that is told just now, and of tasks that samples had a moment ago.
 * All 0 at first. */
struct user_space {
	struct user_map map; /* what its addresses were in */
	struct user_space_task tasks[USER_SPACE_TASKS];
	struct batch_view batch; /* code, and the page tables that lead to it */
	struct batch_mappings mappings;
};

/* A vCPU, as the kernel that is known knows it. */
struct user_space_cpu {
	bool known;
	bool seen;       /* the backend sees its tasks where this kernel has them */
	uint64_t offset; /* that makes per-CPU addresses those of it */
};

/* Which CPU of KERNEL is vCPU ID. CPU->known is false where it can not be told (yet). */
void user_space_find_cpu(struct user_space_cpu *cpu, const struct guest_kernel *kernel,
			 const struct guest_view *view, unsigned int id);

/*
 * SAMPLE gets its task and its cgroup, and SPACE what its addresses were in; where an address can
 * not be told, CHAIN ends. SAMPLE has no task (SAMPLE_TASK_UNKNOWN) if nothing is said. STACK is
 * what a backend saw then.
 */
void user_space_attribute(const struct user_space_cpu *cpu, const struct guest_kernel *kernel,
			  const struct guest_view *view, const struct attach_guest_state *stack,
			  struct sample *sample, struct guest_callchain *chain,
			  struct user_space *space);

/*
 * Of a sample whose task is not told: callers that were found by the page tables of a task are
 * nobody's, and what is behind no call is none. STACK may be NULL.
 */
void user_space_truncate(struct user_space *space, const struct guest_view *view,
			 const struct attach_guest_state *stack, const struct sample *sample,
			 struct guest_callchain *chain);

#endif
