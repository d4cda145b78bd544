/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of struct collector_kernel, for each other and the collector:
 *
 *	collector_kernel.c    which kernel runs; boots and files
 *	collector_image.c     the kernel's image, its mappings in the file, and the host name
 *	collector_scans.c     scans of the list of modules
 *	collector_tasks.c     the layout of tasks where the kernel has no BTF
 *	collector_cache.c     symbols and code in the build-id cache
 *	collector_user.c      user-space images
 *
 * Collector thread.
 */
#ifndef KVMSCOPE_RECORD_COLLECTOR_KERNEL_PARTS_H
#define KVMSCOPE_RECORD_COLLECTOR_KERNEL_PARTS_H

#include "vmm/guest/linux/deferred_lookup.h"
#include "vmm/guest/linux/user_image.h"
#include "vmm/record/collector_kernel.h"
#include "vmm/record/user_symbols.h"
#include "vmm/record/user_tables.h"

/* --- image: range, symbols, build id and modules, as perf and the cache have them --- */

/* Fills kernel->boot.image from FOUND (NULL: none) and the given symbols. -ENOMEM. */
int collector_image_describe(struct collector_kernel *kernel, const struct guest_kernel *found);

/* The scan NOW found the COUNT modules of LIST. -ENOMEM: the modules are unchanged. */
int collector_image_update_modules(struct collector_kernel *kernel, const struct guest_module *list,
				   size_t count, const struct collector_scan *now);

/* Takes the symbols of modules from FOUND, which replaces OLDER (NULL at first). -ENOMEM: they are
 * unchanged. */
int collector_image_set_modules(struct collector_kernel *kernel, const struct guest_kernel *older,
				const struct guest_kernel *found);

/* Write the mappings of kernel and modules; only of modules, those not yet written. Errors of
 * writing. */
int collector_image_map(struct collector_kernel *kernel);
int collector_image_map_modules(struct collector_kernel *kernel);

/* Are the given symbols, which there are, those of a Linux kernel? */
bool collector_image_given_is_linux(const struct collector_kernel *kernel);

/*
 * For a guest that is a single ELF program, whose code may run at any privilege level: writes a
 * user-space mapping for each executable segment of its file, at its virtual addresses. The errors
 * of realpath() and of writing.
 */
int collector_image_map_program(const struct collector_kernel *kernel);

/* --- scans of the list of modules, and of their symbols when the list has changed --- */

/* What is read between the two calls lies within the scan's time, on whichever CPU samples read
 * their clock. */
struct collector_scan collector_scan_begin(void);
void collector_scan_end(struct collector_scan *scan);
/* Now, plus the largest difference of two CPUs' clocks: ns, by the clock of samples. */
uint64_t collector_scan_latest(void);

/* Scans the list of the newest kernel if that is due at NOW (ns). Errors of writing. */
int collector_scans_update(struct collector_kernel *kernel, uint64_t now);
/* The last scan: modules that it does not find ended at the one before. Errors of writing. */
int collector_scans_finish(struct collector_kernel *kernel);
/* Call it when nothing uses replaced kernels: applies what their samples confirmed, and frees what
 * samples of the newest kernel were checked against before. */
void collector_scans_reclaim(struct collector_kernel *kernel);

/* --- tasks: where the kernel has no BTF, the layout is found by tasks that the agent reports
 * ------ */

/* The newest kernel has changed: nothing is known of its tasks. The time budget stays. */
void collector_tasks_reset(struct collector_kernel *kernel);

/* Searches for the layout if that is due; on success there is a new newest kernel. NOW and errors
 * as in collector_kernel_update(). */
int collector_tasks_update(struct collector_kernel *kernel, uint64_t now);

/* Warns if the tasks of FOUND, the next newest kernel, are unknown and no agent can report any. */
void collector_tasks_warn_first(const struct collector_kernel *kernel,
				const struct guest_kernel *found);

/* Warns once per kernel what is missing and why, if an agent reported tasks but they were not
 * found.
 */
void collector_tasks_warn_last(struct collector_kernel *kernel);

/* --- build-id cache, where perf finds the guest's symbols and code. A recording does not depend on
 * it: a failure is logged once, and the cache is left alone after that. */

/* Locates the cache, if it is to be used. */
void collector_cache_open(struct collector_kernel *kernel);

/* Adds the present symbols of kernel and modules; a file is open. */
void collector_cache_symbols(struct collector_kernel *kernel);

/* Adds the code, for perf annotate; guest memory is still there. */
void collector_cache_code(struct collector_kernel *kernel);

/* --- host name, as uname -n prints it --------------------------------------------- */

#define COLLECTOR_HOSTNAME_SIZE 65

/*
 * Reads it from init_uts_ns in guest memory, a struct uts_namespace that has a struct new_utsname
 * at its start or after a reference count (include/linux/utsname.h): recognized by its known parts.
 * -ENOENT if it is missing or not set yet. Not on a vCPU thread.
 */
int collector_hostname(const struct guest_kernel *kernel, const struct guest_view *view,
		       char hostname[COLLECTOR_HOSTNAME_SIZE]);

/* --- user-space images of the kernel
 * -------------------------------------------------------------- */

/*
 * SAMPLE, completed with what its stop had no time for, as far as that can be found now: see
 * deferred_lookup.h. ROOM, of DEFERRED_LOOKUP_SIZE bytes, is the caller's. Guest memory must still
 * be there.
 */
const struct sample *collector_user_complete(const struct collector_kernel *kernel,
					     const struct sample *sample, struct sample *room);

/* Reads the names of new images and cgroups: after rings were drained, before their samples are
 * decided. Guest memory must still be there. */
void collector_user_load(struct collector_kernel *kernel);
/* Adds those of IMAGES whose names were read since the last call. */
void collector_user_add_images(struct image_catalog *catalog, const struct user_images *images);

/* Builds unwind tables for up to some ms; the rest is left for the next turn. NOW is ns of
 * CLOCK_MONOTONIC. */
void collector_user_make_tables(const struct collector_kernel *kernel, struct user_tables *tables,
				uint64_t now);

/* Puts their symbols into the build-id cache, for up to some ms. SYMBOLS NULL: no-op. */
void collector_user_find_symbols(struct collector_kernel *kernel, struct user_symbols *symbols,
				 uint64_t now);

/* The same for all that are left, before guest memory is gone; for a second at most. */
void collector_user_last_symbols(struct collector_kernel *kernel, struct user_symbols *symbols);

#endif
