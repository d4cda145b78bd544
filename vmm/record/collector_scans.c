/* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/guest/linux/module_presence.h"
#include "vmm/record/collector_kernel_parts.h"

/* Larger than the difference of two CPUs' clocks. */
#define CLOCK_MARGIN NS_PER_MS
/* A scan takes a fraction of a millisecond, but a guest can have thousands of BPF programs. */
#define SCAN_INTERVAL (50 * NS_PER_MS)
#define SCAN_SHARE    9 /* scans get a tenth of the time at most */
/* Modules are loaded in bursts at boot, and reading their symbols takes time. */
#define REFRESH_INTERVAL (100 * NS_PER_MS)
#define REFRESH_SHARE    4 /* refreshes get a fifth of the time at most */
/* An unreadable list is retried for this long: a scan fails while the list is modified. */
#define BROKEN_MAX (5000 * NS_PER_MS)
#define LAST_SCANS 10

static uint64_t sample_clock(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

uint64_t collector_scan_latest(void)
{
	return sample_clock() + CLOCK_MARGIN;
}

struct collector_scan collector_scan_begin(void)
{
	return (struct collector_scan){ .begun = sample_clock() - CLOCK_MARGIN };
}

void collector_scan_end(struct collector_scan *scan)
{
	scan->ended = collector_scan_latest();
}

/* Reads the symbols of the modules of LIST, which were found a moment ago. If the list has changed,
 * or memory is short, the next try reads them. */
static void refresh(struct collector_kernel *kernel, const struct guest_module *list, size_t count)
{
	struct guest_kernel *newer;

	if (guest_kernel_refresh(&newer, collector_kernel_newest(kernel), kernel->options->view)) {
		log_debug("the guest's modules cannot be read: %s", error_message());
		return;
	}
	collector_kernel_check_runs(
		kernel); /* otherwise the memory that was read may belong to another kernel */
	if (collector_kernel_is_certain(kernel) &&
	    guest_modules_equal(newer->modules, newer->module_count, list, count))
		kernel->boot.current = !collector_kernel_adopt(kernel, newer);
	else
		guest_kernel_free(newer);
}

static void apply_confirmed(void *context, const struct guest_module *module, uint64_t time)
{
	struct collector_kernel *kernel = context;

	module_timeline_confirm(&kernel->boot.modules.timeline, module, time);
}

/* Takes over what vCPUs confirmed at their samples. */
static void apply_presence(struct collector_kernel *kernel)
{
	for (size_t i = 0; i < kernel->found_count; i++)
		module_presence_for_each_seen(guest_kernel_presence(kernel->found[i]),
					      apply_confirmed, kernel);
}

/* Writes to the file, if one is open. */
static int write_modules(struct collector_kernel *kernel)
{
	return kernel->writer && kernel->boot.mapped ? collector_image_map_modules(kernel) : 0;
}

/* The newest kernel's modules may have been gone meanwhile: its users wait for a new publish(). */
static void renew(struct collector_kernel *kernel, const struct guest_module *list, size_t count)
{
	if (kernel->boot.modules.timeline.stopped)
		return;
	if (kernel->boot.current)
		collector_kernel_publish_again(kernel);
	else
		refresh(kernel, list, count);
}

/* Updates the symbols of LIST in the cache, while scans go on for most of the time. */
static void update_symbols(struct collector_kernel *kernel, uint64_t now,
			   const struct guest_module *list, size_t count)
{
	uint64_t begun = sample_clock();

	if (!kernel->boot.cache_outdated || now < kernel->boot.next_refresh)
		return;
	renew(kernel, list, count);
	if (kernel->writer && kernel->boot.mapped)
		collector_cache_symbols(kernel);
	kernel->boot.cache_outdated = !kernel->boot.current;
	kernel->boot.next_refresh =
		now + REFRESH_INTERVAL + REFRESH_SHARE * (sample_clock() - begun);
}

/* When there is no room for more, all modules are reported unknown. */
static void report_list(const struct collector_kernel *kernel, const struct guest_module *list,
			size_t count)
{
	static const struct guest_module none;

	if (kernel->boot.modules.timeline.stopped)
		collector_kernel_drop_modules(kernel);
	else if (kernel->options->modules)
		kernel->options->modules(kernel->options->context, list ? list : &none, count);
}

/* The result of a scan. */
struct found {
	uint64_t begun;            /* cost_clock() */
	struct guest_module *code; /* owned: modules, followed by BPF programs */
	size_t modules, count;     /* number of modules; of all */
};

/* ns, the clock for the cost of a scan: see guest_view.remote. */
static uint64_t cost_clock(const struct collector_kernel *kernel)
{
	return clock_ns(kernel->options->view->remote ? CLOCK_MONOTONIC_RAW
						      : CLOCK_THREAD_CPUTIME_ID);
}

/* Schedules the next scan by the cost of this one so far. */
static void schedule_scan(struct collector_kernel *kernel, uint64_t now, const struct found *found)
{
	uint64_t pause = SCAN_SHARE * (cost_clock(kernel) - found->begun);

	kernel->boot.next_scan = now + (pause > SCAN_INTERVAL ? pause : SCAN_INTERVAL);
}

/* Samples are checked against what SEEN has. If there is no room, the kernel is read again, with
 * more. */
static void update_presence(struct collector_kernel *kernel, const struct found *found)
{
	struct guest_kernel *newest = kernel->found[kernel->found_count - 1];

	if (!guest_kernel_update_presence(newest, found->code, found->count))
		return;
	log_debug("no room for the guest's modules: new ones stay unsymbolized for now");
	kernel->boot.current = false;
	kernel->boot.cache_outdated = true;
}

/* Are these other modules or programs than samples of the newest kernel are checked against? */
static bool has_changed(const struct collector_kernel *kernel, const struct found *found,
			bool as_known)
{
	return !as_known || !kernel->boot.current ||
	       !module_presence_matches(guest_kernel_presence(collector_kernel_newest(kernel)),
					found->code, found->count);
}

static int apply_scan(struct collector_kernel *kernel, uint64_t now,
		      const struct collector_scan *scan, const struct found *found)
{
	const struct guest_kernel *newest = collector_kernel_newest(kernel);
	bool as_known = guest_modules_equal(newest->modules, newest->module_count, found->code,
					    found->modules);

	if (has_changed(kernel, found, as_known)) {
		apply_presence(kernel);
		if (collector_image_update_modules(kernel, found->code, found->count, scan))
			return 0; /* without memory, as if the scan had not been */
		if (!as_known || !kernel->boot.current) {
			kernel->boot.cache_outdated = true;
			report_list(kernel, found->code, found->modules);
		}
	}
	kernel->boot.scan = *scan;
	kernel->boot.scanned = kernel->boot.modules.timeline.programs_listed = true;
	kernel->boot.current = as_known;
	update_presence(kernel, found);
	schedule_scan(kernel, now, found);
	update_symbols(kernel, now, found->code, found->modules);
	update_presence(kernel, found); /* a kernel that was read again has its modules only */
	return write_modules(kernel);
}

/* No module is known to be loaded from here on. */
static int give_up(struct collector_kernel *kernel)
{
	log_debug("the guest's modules stay unsymbolized from here on: %s", error_message());
	apply_presence(kernel);
	if (module_timeline_stop(&kernel->boot.modules.timeline, &kernel->boot.scan))
		return 0;
	collector_kernel_drop_modules(kernel);
	return write_modules(kernel);
}

/* In a remote guest each entry of the list is a request to another program. */
static bool scans_programs(struct collector_kernel *kernel)
{
	return !kernel->options->view->remote &&
	       module_timeline_has_room_for_programs(&kernel->boot.modules.timeline,
						     &kernel->boot.bounds_written);
}

static int scan_code(struct collector_kernel *kernel, struct found *found)
{
	const struct guest_kernel *newest = collector_kernel_newest(kernel);
	int error = guest_kernel_list_modules(newest, kernel->options->view, &found->code,
					      &found->modules);

	if (error)
		return error;
	found->count = found->modules;
	if (scans_programs(kernel) &&
	    guest_kernel_list_programs(newest, kernel->options->view, &found->code, &found->count))
		log_debug("no memory for the guest's BPF programs");
	return 0;
}

int collector_scans_update(struct collector_kernel *kernel, uint64_t now)
{
	struct collector_scan scan = collector_scan_begin();
	struct found found = { .begun = cost_clock(kernel) };
	int error;

	THREAD_CHECK(&kernel->thread);
	kernel->boot.scanned = kernel->boot.modules.timeline.stopped;
	if (kernel->boot.scanned || now < kernel->boot.next_scan)
		return 0;
	error = scan_code(kernel, &found);
	schedule_scan(kernel, now, &found);
	collector_scan_end(&scan);
	if (error)
		return scan.begun - kernel->boot.scan.begun < BROKEN_MAX ? 0 : give_up(kernel);
	collector_kernel_check_runs(
		kernel); /* otherwise the memory that was read may belong to another kernel */
	error = !collector_kernel_is_certain(kernel) ? 0 : apply_scan(kernel, now, &scan, &found);
	free(found.code);
	return error;
}

void collector_scans_reclaim(struct collector_kernel *kernel)
{
	const struct guest_kernel *newest = collector_kernel_newest(kernel);

	THREAD_CHECK(&kernel->thread);
	for (size_t i = 0; i + 1 < kernel->found_count; i++)
		module_presence_for_each_seen(guest_kernel_presence(kernel->found[i]),
					      apply_confirmed, kernel);
	if (newest)
		module_presence_reclaim(guest_kernel_presence(newest), apply_confirmed, kernel);
}

int collector_scans_finish(struct collector_kernel *kernel)
{
	int error = 0;

	THREAD_CHECK(&kernel->thread);
	kernel->boot.scanned = false;
	for (int i = 0; i < LAST_SCANS && !error && !kernel->boot.scanned; i++) {
		kernel->boot.next_scan = kernel->boot.next_refresh = 0;
		error = collector_scans_update(kernel, 0);
	}
	return error || kernel->boot.scanned ? error : give_up(kernel);
}
