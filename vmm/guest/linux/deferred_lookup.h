/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups for which a stop had no time, made later by another thread while the guest runs: the
 * cgroup of a sample, and the mappings of its callers. During the stop one or two values are read
 * for each. If they have changed at the later lookup, its result is dropped:
 *
 *	cgroup		the task, and its css_set, which changes when the task is moved
 *	mappings	the address space's number, which is never reused, and its number of
 *			TLB flushes (mm_context_t: ctx_id, tlb_gen; Linux 4.14)
 *
 * Code that a thread executes or has to return to was in the page tables when it ran. Until a
 * translation is removed from them, it stays mapped at the same address.
 */
#ifndef KVMSCOPE_GUEST_LINUX_DEFERRED_LOOKUP_H
#define KVMSCOPE_GUEST_LINUX_DEFERRED_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sample_record.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_cgroup.h"

struct guest_kernel;
struct guest_task;

/* The parts of a sample that the stop did not look up. */
enum deferred_lookup_part { DEFERRED_LOOKUP_CGROUP = 1 << 0, DEFERRED_LOOKUP_MAPPINGS = 1 << 1 };

/*
 * Notes what the later lookup of PARTS for TASK needs. False: that lookup is not possible. On the
 * vCPU thread, during the stop: at most 4 reads, no lock, allocation or system call.
 */
bool deferred_lookup_note(const struct guest_kernel *kernel, const struct guest_view *view,
			  const struct guest_task *task, unsigned int parts,
			  struct sample_deferred *noted);

/*
 * The cgroup that TASK was in when its tid and css_set were read. False: unknown, as the task has
 * ended or was moved. Not on a vCPU thread; VIEW is readable.
 */
bool deferred_lookup_cgroup(const struct guest_kernel *kernel, const struct guest_view *view,
			    const struct guest_task *task, struct guest_cgroup *cgroup);

/* Maximum size of a sample that deferred_lookup() writes. */
#define DEFERRED_LOOKUP_SIZE                                                                       \
	(sizeof(struct sample) + SAMPLE_CALLCHAIN_MAX * sizeof(uint64_t) +                         \
	 SAMPLE_MAPPINGS_MAX * sizeof(struct sample_mapping) + sizeof(struct sample_hit))

/*
 * Copies FROM, which has a note, to TO without the note, and adds what is found. Clears
 * SAMPLE_LOOKUP_INCOMPLETE if that was everything. Makes no lookups in a kernel other than KERNEL.
 * Not on a vCPU thread; VIEW is readable.
 */
void deferred_lookup(const struct guest_kernel *kernel, const struct guest_view *view,
		     const struct sample *from, struct sample *to);

#endif
