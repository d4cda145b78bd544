/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which module was at which address, and for what time that is proven. Nothing reports modules:
 * their list is scanned now and then, and samples check whether the module they are in is still
 * there. A module that two consecutive scans found was there in between. One that the next scan
 * does not find ends after the last sample that confirmed it; one at the address of an earlier
 * module begins at the end of the scan that found it first. The time in between stays open. What
 * comes and goes between two scans is not seen.
 *
 * A module at an address that had none before begins at time 0: perf symbolizes only modules that
 * it knows of before the first sample. For a BPF program that is so only if the first scan found
 * it: many come and go between two scans, at the same addresses.
 *
 * Collector thread.
 */
#ifndef KVMSCOPE_RECORD_MODULE_TIMELINE_H
#define KVMSCOPE_RECORD_MODULE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/record/module_lookup.h"

/* A scan of the list takes from BEGUN to ENDED; ns by the clock of samples. */
struct collector_scan {
	uint64_t begun, ended;
};

/* The beginning or the end of a module's time at its address. */
struct module_bound {
	struct guest_module module;
	uint64_t time; /* ns, from when on it is there, or may not be; 0: always */
	bool end;
	bool written; /* to files: its name means this module only */
	/* Of a beginning: */
	bool over;     /* its end follows */
	uint64_t seen; /* ns, the latest sample that confirmed it; 0: none */

	bool forgotten; /* about to be removed */
};

/* Zeroed: none yet. */
struct module_timeline {
	struct module_bound *bounds; /* owned; in the order in which they were found */
	size_t count, capacity;
	struct address_ranges forgotten; /* where forgotten BPF programs were */
	bool programs_listed;            /* a scan listed BPF programs; set by the scanner */
	bool stopped;
};

/* Limit for what a guest can cause. */
#define MODULE_TIMELINE_MAX 16384

/* The scan NOW found the COUNT modules; LATEST was the scan before. Without room, or after a stop,
 * all modules end and no more are added. 0, or -ENOMEM with everything unchanged. */
int module_timeline_update(struct module_timeline *timeline, const struct guest_module *modules,
			   size_t count, const struct collector_scan *latest,
			   const struct collector_scan *now);

/* Reserved for modules: without room, all of them lose their symbols. */
#define MODULE_TIMELINE_MODULES_MAX (MODULE_TIMELINE_MAX / 2)

/*
 * Is there room for BPF programs? If it is short, ended programs are forgotten, the oldest first,
 * except for their addresses, and *WRITTEN, the number of bounds that were written, is adjusted.
 * Programs that were not written to a file by then are lost.
 */
bool module_timeline_has_room_for_programs(struct module_timeline *timeline, size_t *written);

/* A sample confirmed that MODULE, which a scan found, was at its address at TIME. */
void module_timeline_confirm(struct module_timeline *timeline, const struct guest_module *module,
			     uint64_t time);

/* The list cannot be read: all modules end for good after LATEST, the last scan. 0 or -ENOMEM. */
int module_timeline_stop(struct module_timeline *timeline, const struct collector_scan *latest);

/* The ranges of all modules, valid until the timeline changes; to be closed. -ENOMEM. */
int module_timeline_spans(const struct module_timeline *timeline, struct module_spans *spans);

/* Was another module, or another build of it, at the addresses of MODULE? SPANS are up to date. */
bool module_timeline_is_shared(const struct module_timeline *timeline,
			       const struct module_spans *spans, const struct guest_module *module);

/* Frees what it holds; zeroed, it holds nothing. */
void module_timeline_free(struct module_timeline *timeline);

#endif
