/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's guest kernel: found some time after the guest has started,
 * kept up with as modules come, and told to the file, the build-id cache and
 * the sampler. All on the collector's thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_KERNEL_H
#define KVMSCOPE_RECORD_COLLECTOR_KERNEL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "shared/thread_check.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/record/collector.h"
#include "vmm/record/collector_modules.h"
#include "vmm/record/search_pace.h"
#include "vmm/resolve/image_catalog.h"
#include "vmm/symbols/build_id_cache.h"

/* Of collector_tasks.c: how far it is with the newest kernel. */
struct collector_tasks {
	struct reported_tasks told;
	uint64_t told_until; /* ns: until then those of TOLD are looked for */
	uint64_t next_ask, interval;
	struct cpu_budget work; /* looking for them, in whichever kernel */
	bool checked, hopeless; /* its symbols do not tell enough */
	bool warned;
	char reason[256]; /* why they were not found; "" */
};

enum collector_kernel_state {
	KERNEL_RUNNING,   /* the newest one, as soon as one was found */
	KERNEL_LOST,      /* the newest one does not run: the one that does is searched for */
	KERNEL_RESTARTED, /* lost, and even at the same place it is another boot */
};

/* What is known of one boot of the guest. Zeroed: nothing. */
struct collector_boot {
	struct kernel_image image;        /* valid if mapped */
	bool mapped;                      /* the image is known, and mapped in the file, if any */
	struct collector_modules modules; /* all that were ever loaded */
	size_t intervals_written;         /* to the file, of the modules' */
	struct image_catalog images;      /* of user space, that samples carry mappings of */
	struct build_id_cache_boot cache;
	bool cache_outdated; /* the symbols there are not those of the present modules */
	uint64_t ticks;      /* of its clock, at the latest check */

	struct collector_scan scan; /* the latest that read the whole list of modules */
	bool scanned;               /* in this turn */
	bool current;               /* it found the modules of the newest kernel */
	bool report_used;           /* the agent's report, for the newest kernel */
	/* ns: not earlier: scan of modules, refresh of their symbols, request to the agent */
	uint64_t next_scan, next_refresh, next_report;
};

struct collector_kernel {
	const struct collector_options *options;
	struct thread_check thread;
	/* Of the open file; NULL: none is open, and nothing is written anywhere. */
	struct perf_data_writer *writer;
	const char *path;

	struct guest_kernel **found; /* published ones, the newest last; owned */
	size_t found_count;
	enum collector_kernel_state state;
	unsigned int doubts;            /* consecutive stops in which it seemed not to run */
	struct guest_registers doubted; /* of the last of them */
	struct guest_kernel *other;     /* runs instead; owned */
	struct collector_boot boot;

	struct symbols *given;            /* of --kallsyms or --vmlinux; owned */
	struct reported_kernel *reported; /* by the guest's agent; owned; NULL */
	struct collector_tasks tasks;
	uint8_t *btf; /* of --btf; owned; NULL without it */
	size_t btf_size;
	uint8_t build_id[20];
	size_t build_id_size;
	struct guest_paging paging; /* that maps the image; cr3 0: not known */

	struct search_pace pace;         /* by the collector's clock */
	struct collector_scan find_scan; /* during which the latest kernel was found */

	char cache[PATH_MAX]; /* "" without one */
	bool cache_failed;    /* was logged */
	bool cache_short;     /* of room; was logged */
};

static inline bool collector_kernel_is_lost(const struct collector_kernel *kernel)
{
	return kernel->state != KERNEL_RUNNING;
}

/* Not lost, and no stop since the last confirmation suggests so: its memory can be trusted. */
static inline bool collector_kernel_is_certain(const struct collector_kernel *kernel)
{
	return kernel->state == KERNEL_RUNNING && !kernel->doubts;
}

/* Loads the symbol files that the options name. Their errors. No file is open yet. */
int collector_kernel_init(struct collector_kernel *kernel, const struct collector_options *options);

/*
 * WRITER writes the file PATH from here on; both stay the caller's. What is
 * known of the kernel goes into it, and into the cache. Errors of writing.
 */
int collector_kernel_begin_file(struct collector_kernel *kernel, struct perf_data_writer *writer,
				const char *path);
void collector_kernel_end_file(struct collector_kernel *kernel);

/* The guest's name, as it has it now, to the file that is open. Errors of writing. */
int collector_kernel_write_hostname(struct collector_kernel *kernel);

/*
 * Finds the kernel or its new modules if it is time to, NOW being in ns.
 * Errors are those of writing the file.
 */
int collector_kernel_turn(struct collector_kernel *kernel, uint64_t now);

/* Has another kernel taken the place of the one that was known? A boot has ended then. */
bool collector_kernel_replaced(const struct collector_kernel *kernel);

/*
 * A boot of the guest has ended: nothing that was known goes into a file that
 * is begun behind it, but given names. Its kernels stay for vCPUs that may still use them.
 */
void collector_kernel_end_boot(struct collector_kernel *kernel);

/*
 * Then the next one begins: with the kernel that has taken the other's place, or, if there is none,
 * with none: the guest is about to be reset, and no vCPU runs. Errors of writing.
 */
int collector_kernel_begin_boot(struct collector_kernel *kernel);

/* Frees what was replaced, after collector_options.settle. */
void collector_kernel_reclaim(struct collector_kernel *kernel);

/*
 * May readers show the samples so far? Only if the turn before this looked at the modules: what
 * comes to be known later is of later times.
 */
bool collector_kernel_settled(const struct collector_kernel *kernel);

/* The last look for the file, and the code for perf annotate. Guest memory must still be there. */
int collector_kernel_finish(struct collector_kernel *kernel);

/* Frees the kernels: no unwinder may be in use any more. */
void collector_kernel_free(struct collector_kernel *kernel);

/* For the collector's other parts. The kernel that was found last; NULL: none was. */
const struct guest_kernel *collector_kernel_newest(const struct collector_kernel *kernel);
/* Does it still run (kernel->lost, kernel->doubts)? Where no vCPU was stopped, that is as it was.
 */
void collector_kernel_check_runs(struct collector_kernel *kernel);
/* The same kernel with other modules, published and taken over. -ENOMEM. */
int collector_kernel_adopt(struct collector_kernel *kernel, struct guest_kernel *newer);
/* The newest one, whose modules were others for a while, or which could not be seen. */
void collector_kernel_publish_again(struct collector_kernel *kernel);
/* Nobody looks at the list of modules any more (collector_options, modules). */
void collector_kernel_drop_modules(const struct collector_kernel *kernel);

/* Is the guest one program and no Linux, by the file that was given? */
bool collector_kernel_is_program(const struct collector_kernel *kernel);
/* As uname -r, "" if it is not known. */
const char *collector_kernel_release(const struct collector_kernel *kernel);

#endif
