/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_kernel_parts.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "shared/error.h"
#include "shared/log.h"

void collector_cache_open(struct collector_kernel *kernel)
{
	if (kernel->options->buildid_cache &&
	    build_id_cache_open(kernel->options->names, kernel->cache, sizeof(kernel->cache))) {
		log_warning("no symbols for perf: %s", error_message());
		kernel->cache[0] = '\0';
	}
}

/* A recording does not depend on the cache: only the first failure is logged. */
static void note_result(struct collector_kernel *kernel, int error)
{
	if (!error || kernel->cache_failed)
		return;
	kernel->cache_failed = true;
	log_warning("perf will not find the guest's symbols: %s", error_message());
}

/* Without room nothing is added; the next file tries again. */
static bool has_room(struct collector_kernel *kernel)
{
	const struct build_id_cache_location *location = kernel->options->names;

	if (!location || location->has_room(location->context)) {
		kernel->cache_short = false;
		return true;
	}
	if (!kernel->cache_short)
		log_warning("the guest's symbols are not kept: %s", error_message());
	kernel->cache_short = true;
	return false;
}

/* In the host's perspective perf finds a guest's symbols by the VMM's process, below
 * FILE.guestmount. */
static int link_guest(const struct collector_kernel *kernel)
{
	char mount[PATH_MAX];
	struct stat status;

	if (stat(kernel->path, &status) || !S_ISREG(status.st_mode))
		return 0;
	if (snprintf(mount, sizeof(mount), "%s.guestmount", kernel->path) >= (int)sizeof(mount))
		return error_set(-ENAMETOOLONG, "%s: the file name is too long", kernel->path);
	return build_id_cache_link_guest(mount, kernel->options->output.vmm_pid,
					 &kernel->boot.cache);
}

/* Symbols that are in the cache already must not look useless. */
static void touch(const struct collector_kernel *kernel)
{
	const struct kernel_image *image = &kernel->boot.image;

	build_id_cache_touch(kernel->cache, span_of(image->build_id, image->build_id_size));
	for (size_t i = 0; i < image->module_count; i++)
		build_id_cache_touch(kernel->cache, span_of(image->modules[i].build_id,
							    image->modules[i].build_id_size));
}

void collector_cache_symbols(struct collector_kernel *kernel)
{
	if (*kernel->cache)
		touch(kernel);
	if (!*kernel->cache || kernel->cache_failed || !has_room(kernel))
		return;
	note_result(kernel, build_id_cache_add_kernel(kernel->cache, &kernel->boot.image));
	if (!kernel->cache_failed)
		note_result(kernel, build_id_cache_add_boot(kernel->cache, &kernel->boot.image,
							    &kernel->boot.cache));
	if (!kernel->cache_failed)
		note_result(kernel, build_id_cache_add_modules(kernel->cache, &kernel->boot.image));
	if (!kernel->cache_failed && kernel->options->output.perspective == PERSPECTIVE_HOST)
		note_result(kernel, link_guest(kernel));
}

void collector_cache_code(struct collector_kernel *kernel)
{
	if (*kernel->cache && !kernel->cache_failed && *kernel->boot.cache.path && has_room(kernel))
		note_result(kernel, build_id_cache_add_code(kernel->cache, &kernel->boot.image,
							    kernel->options->view, &kernel->paging,
							    &kernel->boot.cache));
}
