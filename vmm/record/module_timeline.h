/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which module lay where, and from when to when that is proven. Nobody tells
 * of modules: their list is looked at now and then, and samples find out
 * whether the module that they are in is still there. What both of two looks
 * saw was there between them. A module that the next look does not see ends
 * behind the last sample that found it; one that comes into a place that
 * another had begins at the end of the look that saw it first. Of the time
 * between nothing is said. What came and went between two looks is not seen.
 *
 * A module whose place nobody was seen in before has it since ever: perf gives names
 * to those modules only that it knows of before the first sample. A BPF program has so only if the
 * first look at those saw it: those that come and go between two looks are many, and have the same
 * places.
 *
 * The collector's thread.
 */
#ifndef KVMSCOPE_RECORD_MODULE_TIMELINE_H
#define KVMSCOPE_RECORD_MODULE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/record/address_ranges.h"
#include "vmm/record/module_spans.h"

/* A look at the list lies between two times; ns by the clock of samples. */
struct collector_scan {
	uint64_t begun, ended;
};

/* The beginning or the end of a module's time in its place. */
struct module_bound {
	struct guest_module module;
	uint64_t time; /* from then on it is there, or is not known to be there any more; 0: since
			  ever */
	bool end;
	bool told; /* readers are told of it: its name means this module only */
	/* Of a beginning: */
	bool over;     /* its end is there, too */
	uint64_t seen; /* the latest sample that found it; 0: none */

	bool forgotten; /* it is about to be removed */
};

/* Zeroed: none yet. */
struct module_timeline {
	struct module_bound *places; /* owned; in the order in which they were seen */
	size_t count, capacity;
	struct address_ranges forgotten; /* where BPF programs were that PLACES has no more */
	bool programs_listed; /* a look saw BPF programs, if there are any; set by who looks */
	bool stopped;
};

/* More than this many are not remembered: a guest is not to fill our memory. */
#define MODULE_TIMELINE_MAX 16384

/*
 * The look NOW saw the COUNT modules; LATEST was the look before. Where there is no room, or it
 * was stopped, all modules end and no more come. 0 or -ENOMEM, with what was known before.
 */
int module_timeline_update(struct module_timeline *places, const struct guest_module *modules,
			   size_t count, const struct collector_scan *latest,
			   const struct collector_scan *now);

/* Of these so many are for modules only, whose names all go when there is no more room. */
#define MODULE_TIMELINE_MODULES_MAX (MODULE_TIMELINE_MAX / 2)

/*
 * Is there room for BPF programs? Where it is short those that are gone are forgotten, the oldest
 * first, but for where they were; *TOLD of the first places, which follows. Names that were not
 * told to a file by then are lost.
 */
bool module_timeline_has_room_for_programs(struct module_timeline *places, size_t *told);

/* A sample found MODULE, which a look saw, in its place at TIME. */
void module_timeline_confirm(struct module_timeline *places, const struct guest_module *module,
			     uint64_t time);

/* The list can't be read any more: all modules end, LATEST being the last look, for good. 0 or
 * -ENOMEM. */
int module_timeline_stop(struct module_timeline *places, const struct collector_scan *latest);

/* Where all began that PLACES remembers: valid until those change. To be closed. -ENOMEM. */
int module_timeline_spans(const struct module_timeline *places, struct module_spans *spans);

/* Was another one than MODULE, or another build of it, seen in its place? SPANS is of PLACES as
 * they are. */
bool module_timeline_is_shared(const struct module_timeline *places,
			       const struct module_spans *spans, const struct guest_module *module);

/* Frees what it holds; zeroed, it holds nothing. */
void module_timeline_free(struct module_timeline *places);

#endif
