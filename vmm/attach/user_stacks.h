/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What samples copy of each guest process: of its user stack, as little as its call chains need.
 * A process starts with BPF_USER_STACK_FIRST bytes. A chain that ended at the end of its copy
 * raises that to BPF_USER_STACK_MAX; afterwards the size follows what the chains read. While its
 * mappings change, samples have the GPAs of some pages of its code, too.
 *
 * The attach thread.
 */
#ifndef KVMSCOPE_ATTACH_USER_STACKS_H
#define KVMSCOPE_ATTACH_USER_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/bpf/guest_sample.h"

/* Samples after which the size of a process is determined again, */
#define USER_STACKS_PERIOD 64
/* and the least result, in bytes. */
#define USER_STACKS_LEAST 512

struct user_stack {
	uint64_t mm; /* GVA of the process's struct mm_struct; 0: unused */
	uint32_t size;
	uint32_t read, read_before; /* most bytes that a chain read, in this period and the last */
	uint32_t samples;           /* in this period */
	/* As in struct bpf_process. */
	uint64_t number, changes;
	uint64_t pages[BPF_PROCESS_PAGES];
	unsigned int page_count; /* of all that were added */
};

/* Processes that share a place replace each other. Zero-initialized. */
struct user_stacks {
	struct user_stack places[BPF_PROCESSES];
};

/*
 * Notes a sample of the process with MM: of its stack, COPIED bytes were there, and unwinding read
 * or missed bytes up to READ from the stack pointer on. Returns the size for its next samples if
 * that has changed, else 0.
 */
uint32_t user_stacks_note(struct user_stacks *self, uint64_t mm, size_t copied, uint64_t read);

/* The process with MM; what was known of another one in its place is dropped. */
struct user_stack *user_stacks_find(struct user_stacks *self, uint64_t mm);

/* Adds the page of ADDRESS for its mapping [START, END), unless that has a page. True: added; the
 * oldest page is replaced. */
bool user_stack_add_page(struct user_stack *stack, uint64_t start, uint64_t end, uint64_t address);

#endif
