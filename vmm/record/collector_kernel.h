/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's kernel, for a collector: found some time after the guest has started, followed as
 * modules come and go, and passed on to the file, the build-id cache and the sampler. Collector
 * thread.
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
#include "vmm/resolve/resolver_image.h"
#include "vmm/symbols/build_id_cache.h"

/* Of collector_tasks.c: the search for the layout of tasks in the newest kernel. */
struct collector_tasks {
	struct reported_tasks reported;
	uint64_t search_until; /* ns: until then the reported tasks are searched for */
	uint64_t next_ask, interval;
	struct cpu_budget work; /* CPU time of the search, in all kernels */
	bool checked, hopeless; /* its symbols do not suffice */
	bool warned;
	char reason[256]; /* why the search failed; "" */
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
	size_t bounds_written;            /* to the file, of the modules' */
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
	size_t found_count, found_capacity;
	enum collector_kernel_state state;
	unsigned int doubts;            /* consecutive stops in which it seemed not to run */
	struct guest_registers doubted; /* of the last of them */
	struct guest_kernel *other;     /* runs instead; owned */
	struct collector_boot boot;

	struct symbols *given;            /* of --kallsyms or --vmlinux; owned */
	struct vmlinux_file file;         /* of --vmlinux */
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

/* WRITER writes the file PATH from here on; both stay the caller's. Writes what is known of the
 * kernel into the file and the cache. Errors of writing. */
int collector_kernel_begin_file(struct collector_kernel *kernel, struct perf_data_writer *writer,
				const char *path);
void collector_kernel_end_file(struct collector_kernel *kernel);

/* Writes the guest's present host name to the open file. Errors of writing. */
int collector_kernel_write_hostname(struct collector_kernel *kernel);

/* Searches for the kernel, or scans its modules, if that is due at NOW (ns). Errors of writing. */
int collector_kernel_update(struct collector_kernel *kernel, uint64_t now);

/* Was another kernel found instead? Then a boot has ended. */
static inline bool collector_kernel_replaced(const struct collector_kernel *kernel)
{
	return kernel->other;
}

/* A boot of the guest has ended: files that are begun after this get nothing of it, except given
 * symbols. Its kernels stay for vCPUs that may still use them. */
void collector_kernel_end_boot(struct collector_kernel *kernel);

/* The next boot begins, with the kernel that was found instead. Without one, the guest is about to
 * be reset, and no vCPU runs. Errors of writing. */
int collector_kernel_begin_boot(struct collector_kernel *kernel);

/* Frees replaced kernels, after collector_options.settle. */
void collector_kernel_reclaim(struct collector_kernel *kernel);

/* May readers show the samples so far? Only if the last turn scanned the modules: what becomes
 * known later applies to later times. */
bool collector_kernel_settled(const struct collector_kernel *kernel);

/* The last scan, and the code for perf annotate. Guest memory must still be there. */
int collector_kernel_finish(struct collector_kernel *kernel);

/* Frees the kernels: no unwinder may be in use. */
void collector_kernel_free(struct collector_kernel *kernel);

/* The kernel that was found last, whose images and cgroups samples refer to; NULL: none. */
const struct guest_kernel *collector_kernel_newest(const struct collector_kernel *kernel);
/* Updates kernel->state by the latest stop of a vCPU, if there was one. */
void collector_kernel_check_runs(struct collector_kernel *kernel);
/* Publishes NEWER, the same kernel with other modules, and owns it. -ENOMEM. */
int collector_kernel_adopt(struct collector_kernel *kernel, struct guest_kernel *newer);
/* Publishes the newest one again, after it had other modules or was not visible. */
void collector_kernel_publish_again(struct collector_kernel *kernel);
/* Reports that modules are no longer tracked (collector_options.modules). */
void collector_kernel_drop_modules(const struct collector_kernel *kernel);

/* Is the guest a single program instead of Linux, by the given file? */
bool collector_kernel_is_program(const struct collector_kernel *kernel);
/* As uname -r; "" if unknown. */
const char *collector_kernel_release(const struct collector_kernel *kernel);

#endif
