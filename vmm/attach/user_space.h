/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes a sample to its task, and its user-space addresses to mappings, some time after the
 * sample, while the guest has run on.
 *
 * The backend read the task while the vCPU was stopped. Mappings are looked up in the guest's
 * current tree of VMAs, and are valid for the sample if the page of the address has not moved
 * since: a page of a file stays that file's until the guest reuses its memory, and a mapping of
 * another file has other pages. An address whose page has moved ends the chain.
 *
 * If the backend copied the stacks, the chain is unwound here, as that of a stopped vCPU. Mappings
 * are then valid if the address space is the same one, with the same number of TLB flushes as at
 * the sample (deferred_lookup.h). In a process that flushes often, each mapping is valid if the
 * backend has recorded one of its pages with the sample, and that page is where it was when the
 * mapping was found, before or after the sample.
 *
 * Else callers come from frame pointers, which are arbitrary numbers in programs without them. So a
 * caller has to follow a call instruction to the code before it (call_site.h); CHAIN ends at the
 * first one that does not.
 *
 * All functions run on the attach thread.
 */
#ifndef KVMSCOPE_ATTACH_USER_SPACE_H
#define KVMSCOPE_ATTACH_USER_SPACE_H

#include "vmm/attach/backend.h"
#include "vmm/attach/sample_views.h"
#include "vmm/attach/user_stacks.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/user_map.h"

#define USER_SPACE_TASKS    64
#define USER_SPACE_MAPPINGS 128

/* A task with its cgroup. */
struct user_space_task {
	uint64_t at, set; /* as in struct guest_task */
	uint64_t group;   /* GVA of SET's struct cgroup */
	uint64_t time;    /* ns, of the sample it was looked up for */
	uint32_t tid;
	uint32_t cgroups; /* generation of its table; 0: not looked up */
	uint64_t cgroup;  /* 0: unknown */
};

/* A mapping that exists while the address space is in that state. */
struct user_space_mapping {
	uint64_t number, changes; /* of struct guest_space_state */
	uint32_t images;          /* generation of the table with its image */
	struct attach_page page;  /* one of its pages then; GVA 0: unknown */
	struct user_mapping mapping;
};

/* The current sample, and tasks and mappings of recent samples. Zero-initialized. */
struct user_space {
	struct user_map map; /* mappings of its addresses */
	struct user_space_task tasks[USER_SPACE_TASKS];
	struct batch_view batch; /* code, and its page tables */
	struct batch_mappings mappings;
	struct user_space_mapping known[USER_SPACE_MAPPINGS]; /* the oldest one is replaced */
	size_t known_count;                                   /* of all that were added */
	struct user_stacks stacks;
	/* The process of which samples have to copy something else from now on; NULL: none. */
	const struct user_stack *updated;
};

/* A vCPU in the known kernel. */
struct user_space_cpu {
	bool known;
	bool seen;        /* the backend has the layout of this kernel's tasks */
	uint64_t offset;  /* added to per-CPU addresses for it */
	uint64_t irq_top; /* GVA of the end of its interrupt stack; 0: unknown */
};

/* Finds the CPU of KERNEL that is vCPU ID. CPU->known is false if it is not known (yet). */
void user_space_find_cpu(struct user_space_cpu *cpu, const struct guest_kernel *kernel,
			 const struct guest_view *view, unsigned int id);

/*
 * Sets SAMPLE's task and cgroup, unwinds copied stacks, and stores its mappings in SPACE; CHAIN
 * ends at the first address that cannot be attributed. The task stays SAMPLE_TASK_UNKNOWN if it is
 * not certain. STACK is the backend's.
 */
void user_space_attribute(const struct user_space_cpu *cpu, const struct guest_kernel *kernel,
			  const struct guest_view *view, const struct attach_guest_state *stack,
			  struct sample *sample, struct guest_callchain *chain,
			  struct user_space *space);

/* Unwinds the copied stack of a kernel that is not known, by frame pointers. */
void user_space_unwind_unknown(const struct guest_view *view,
			       const struct attach_guest_state *stack, const struct sample *sample,
			       struct guest_callchain *chain, struct user_space *space);

/* Truncates the chain of a sample with an unknown task: callers that were read through the page
 * tables of a task, and addresses that do not follow a call. STACK may be NULL. */
void user_space_truncate(struct user_space *space, const struct guest_view *view,
			 const struct attach_guest_state *stack, const struct sample *sample,
			 struct guest_callchain *chain);

#endif
