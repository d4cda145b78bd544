/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stop had no time to look at, looked up behind it by another thread while
 * the guest runs: a sample's cgroup, and where its callers are mapped. The stop
 * notes what has to be as it was then, at a read or two for each; what is not is
 * dropped.
 *
 *	cgroup		the task, while it exists, and its css_set: a task that is moved gets
 *another one mappings	the number of the address space, which no other one ever has, and how often
 *			translations were taken out of it (mm_context_t: ctx_id, tlb_gen;
 *Linux 4.14)
 *
 * Code that a thread is in, or has still to return to, was in the page tables when it ran. While no
 * translation is taken out of them it is where it was.
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

/* What of it the stop did not look at. */
enum deferred_lookup_part { DEFERRED_LOOKUP_CGROUP = 1 << 0, DEFERRED_LOOKUP_MAPPINGS = 1 << 1 };

/*
 * Notes for PARTS, of TASK. False: there is nothing by which it could be looked up later. On the
 * vCPU thread, at the stop: at most 4 reads, no lock, allocation or system call.
 */
bool deferred_lookup_note(const struct guest_kernel *kernel, const struct guest_view *view,
			  const struct guest_task *task, unsigned int parts,
			  struct sample_deferred *noted);

/*
 * The cgroup that TASK was in when it was seen with its tid and css_set. False: that can not be
 * told, as the task has ended or was moved. Not on a vCPU thread; VIEW is readable.
 */
bool deferred_lookup_cgroup(const struct guest_kernel *kernel, const struct guest_view *view,
			    const struct guest_task *task, struct guest_cgroup *cgroup);

/* Room for each sample that deferred_lookup() makes. */
#define DEFERRED_LOOKUP_SIZE                                                                       \
	(sizeof(struct sample) + SAMPLE_CALLCHAIN_MAX * sizeof(uint64_t) +                         \
	 SAMPLE_MAPPINGS_MAX * sizeof(struct sample_mapping) + sizeof(struct sample_hit))

/*
 * FROM, which has something noted, with what could be found of it: without the note, and without
 * SAMPLE_LOOKUP_INCOMPLETE where that was all. Of another kernel than KERNEL nothing is looked up.
 * Not on a vCPU thread; VIEW is readable.
 */
void deferred_lookup(const struct guest_kernel *kernel, const struct guest_view *view,
		     const struct sample *from, struct sample *to);

#endif
