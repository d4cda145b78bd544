// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/collector_kernel.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/guest/kernel_identity.h"
#include "vmm/profile/collector_hostname.h"
#include "vmm/profile/collector_image.h"
#include "vmm/profile/collector_program.h"
#include "vmm/profile/elf_symbols.h"
#include "vmm/profile/kallsyms_file.h"

#define MILLISECOND       1000000ull
#define FIND_INTERVAL_MIN (20 * MILLISECOND)
/* Stops of vCPUs that make it certain that a kernel runs no more. */
#define DOUBTS            3
#define FIND_INTERVAL_MAX (200 * MILLISECOND)
/* Looking at the list takes a fraction of a millisecond. */
#define LOOK_INTERVAL (50 * MILLISECOND)
/* Many modules come one after the other at boot, and reading their symbols takes time. */
#define REFRESH_INTERVAL (100 * MILLISECOND)
#define REFRESH_SHARE    4 /* it does so for a fourth of the time at most */
/* So long a list that can't be read is waited for: it breaks off while it is changed. */
#define BROKEN_MAX (5000 * MILLISECOND)
#define LAST_LOOKS 10
/*
 * So many kernels, with all their symbols each, wait for vCPUs that took no sample since they were replaced.
 * One that never starts is waited for for ever: new modules have no names then.
 */
#define PUBLISHED_MAX 32
/* More than the clocks of two CPUs may be apart. */
#define CLOCK_MARGIN MILLISECOND

static const struct guest_kernel *newest(const struct collector_kernel *kernel)
{
	return kernel->found_count ? kernel->found[kernel->found_count - 1].kernel : NULL;
}

static int load_given(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;

	if (options->kallsyms)
		return kallsyms_file_load(&kernel->given, options->kallsyms);
	if (options->vmlinux)
		return elf_symbols_load(&kernel->given, options->vmlinux, ELF_VIRTUAL_ADDRESSES, NULL, 0);
	return 0;
}

static void find_cache(struct collector_kernel *kernel)
{
	if (kernel->options->buildid_cache &&
	    build_id_cache_directory(kernel->cache, sizeof(kernel->cache))) {
		log_warning("no names for perf: %s", error_message());
		kernel->cache[0] = '\0';
	}
}

int collector_kernel_init(struct collector_kernel *kernel, const struct collector_options *options)
{
	*kernel = (struct collector_kernel){
		.options = options,
		.find_interval = FIND_INTERVAL_MIN,
	};
	find_cache(kernel);
	return load_given(kernel);
}

/* Whether the cache can be written is not the recording's fate: said once, then left. */
static void cache_result(struct collector_kernel *kernel, int error)
{
	if (!error || kernel->cache_failed)
		return;
	kernel->cache_failed = true;
	log_warning("perf will not find the guest's symbols: %s", error_message());
}

/* In the host's perspective perf looks for a guest's symbols by the guest's process, below FILE.guestmount.
 */
static int link_guest(const struct collector_kernel *kernel)
{
	char mount[PATH_MAX];
	struct stat status;

	if (stat(kernel->path, &status) || !S_ISREG(status.st_mode))
		return 0;
	if (snprintf(mount, sizeof(mount), "%s.guestmount", kernel->path) >= (int)sizeof(mount))
		return error_set(-ENAMETOOLONG, "%s is too long a name", kernel->path);
	return build_id_cache_link_guest(mount, kernel->options->output.vmm_pid, &kernel->boot);
}

static void cache_symbols(struct collector_kernel *kernel)
{
	if (!*kernel->cache || kernel->cache_failed)
		return;
	cache_result(kernel, build_id_cache_add_kernel(kernel->cache, &kernel->image));
	if (!kernel->cache_failed)
		cache_result(kernel, build_id_cache_add_boot(kernel->cache, &kernel->image, &kernel->boot));
	if (!kernel->cache_failed)
		cache_result(kernel, build_id_cache_add_modules(kernel->cache, &kernel->image));
	if (!kernel->cache_failed && kernel->options->output.perspective == PERSPECTIVE_HOST)
		cache_result(kernel, link_guest(kernel));
}

static int keep(struct collector_kernel *kernel, struct guest_kernel *found)
{
	struct collector_published *larger =
		reallocarray(kernel->found, kernel->found_count + 1, sizeof(*larger));

	if (!larger) {
		guest_kernel_free(found);
		return error_set(-ENOMEM, "no memory for the guest's kernel");
	}
	kernel->found = larger;
	kernel->found[kernel->found_count++] = (struct collector_published){ .kernel = found };
	kernel->paging = found->paging;
	return 0;
}

static uint64_t sample_clock(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The clock is read only when all vCPUs can see what was published. */
static void note_replaced(struct collector_kernel *kernel)
{
	atomic_thread_fence(memory_order_seq_cst);
	for (size_t i = 0; i + 1 < kernel->found_count; i++)
		if (!kernel->found[i].replaced)
			kernel->found[i].replaced = sample_clock() + CLOCK_MARGIN;
}

void collector_kernel_reclaim(struct collector_kernel *kernel, uint64_t time)
{
	size_t gone = 0;

	while (gone + 1 < kernel->found_count && kernel->found[gone].replaced &&
	       kernel->found[gone].replaced < time)
		guest_kernel_free(kernel->found[gone++].kernel);
	if (!gone)
		return;
	kernel->found_count -= gone;
	memmove(kernel->found, kernel->found + gone, kernel->found_count * sizeof(kernel->found[0]));
}

static void publish(struct collector_kernel *kernel, const struct guest_kernel *found)
{
	const struct collector_options *options = kernel->options;

	if (options->publish)
		options->publish(options->context, found);
	note_replaced(kernel);
}

static bool given_is_program(const struct collector_kernel *kernel)
{
	return kernel->given && kernel->options->vmlinux && !collector_image_given_is_linux(kernel);
}

/* What is known of the kernel, to the cache and to the file that is open. */
static int write_known(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;
	int error;

	if (!kernel->writer) {
		kernel->mapped = true;
		return 0;
	}
	cache_symbols(kernel);
	error = collector_image_map(kernel);
	if (!error && *collector_kernel_release(kernel))
		error = perf_data_writer_set_guest(kernel->writer, collector_kernel_release(kernel), NULL);
	if (!error && given_is_program(kernel))
		error = collector_map_program(kernel->writer, options->vmlinux,
					      perf_data_writer_unknown_pid(kernel->writer));
	return error;
}

int collector_kernel_begin_file(struct collector_kernel *kernel, struct perf_data_writer *writer,
				const char *path)
{
	kernel->writer = writer;
	kernel->path = path;
	kernel->places_told = 0;
	return kernel->mapped ? write_known(kernel) : 0;
}

void collector_kernel_end_file(struct collector_kernel *kernel)
{
	kernel->writer = NULL;
	kernel->path = NULL;
}

/* The unwinder goes out first: until it does, samples have no callers, and writing the cache takes time. */
static int introduce(struct collector_kernel *kernel, struct guest_kernel *found)
{
	int error = keep(kernel, found);

	kernel->look = kernel->find_look;
	kernel->looked = kernel->as_known = true;
	if (!error) {
		publish(kernel, found);
		error = collector_image_describe(kernel, found);
	}
	if (error) /* the guest's fault or memory's: the recording goes on without names */
		return 0;
	return write_known(kernel);
}

static struct collector_look begin_look(void)
{
	return (struct collector_look){ .begun = sample_clock() - CLOCK_MARGIN };
}

static void end_look(struct collector_look *look)
{
	look->ended = sample_clock() + CLOCK_MARGIN;
}

/* The kernel that runs now, looked for with longer and longer pauses; NULL: none was found. */
static struct guest_kernel *find(struct collector_kernel *kernel, uint64_t now)
{
	const struct collector_options *options = kernel->options;
	struct guest_registers registers;
	struct guest_kernel *found;

	if (now < kernel->next_find || !options->registers ||
	    !options->registers(options->context, &registers))
		return NULL;
	kernel->next_find = now + kernel->find_interval;
	kernel->find_interval += kernel->find_interval / 2;
	if (kernel->find_interval > FIND_INTERVAL_MAX)
		kernel->find_interval = FIND_INTERVAL_MAX;
	kernel->find_look = begin_look();
	if (guest_kernel_find(&found, options->view, &registers)) {
		log_debug("no guest kernel yet: %s", error_message());
		return NULL;
	}
	end_look(&kernel->find_look);
	return found;
}

static int find_first(struct collector_kernel *kernel, uint64_t now)
{
	struct guest_kernel *found = find(kernel, now);

	return found ? introduce(kernel, found) : 0;
}

/* A kernel of the same build may be started where the one before it was: its time begins anew. */
static void look_at_ticks(struct collector_kernel *kernel)
{
	uint64_t ticks;

	if (!guest_kernel_ticks(newest(kernel), kernel->options->view, &ticks))
		return;
	kernel->restarted |= ticks < kernel->ticks;
	kernel->ticks = ticks;
}

static void lose(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;

	kernel->lost = true;
	kernel->doubts = 0;
	kernel->next_find = 0;
	kernel->find_interval = FIND_INTERVAL_MIN;
	log_debug("the guest's kernel %s runs no more", newest(kernel)->release);
	if (options->lost)
		options->lost(options->context);
}

/* It was away for a while, or could not be seen. */
static void regain(struct collector_kernel *kernel)
{
	kernel->lost = false;
	publish(kernel, newest(kernel));
}

/*
 * The vCPU that was stopped runs on, and the page tables that it had then may
 * be freed, if their process ended: one stop alone proves nothing. What vCPUs
 * find out while they stand still is sure, and keeps names from samples meanwhile.
 */
static bool is_certain(struct collector_kernel *kernel, const struct guest_registers *registers)
{
	const struct guest_registers *before = &kernel->doubted;

	if (kernel->restarted)
		return true;
	if (!kernel->doubts || registers->rip != before->rip || registers->rsp != before->rsp ||
	    registers->paging.cr3 != before->paging.cr3)
		kernel->doubts++;
	kernel->doubted = *registers;
	return kernel->doubts >= DOUBTS;
}

/* Does the newest kernel still run? Where no vCPU was stopped, that is not known: it is as it was. */
static void check_runs(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;
	struct guest_registers registers;
	bool runs;

	if (!options->registers || !options->registers(options->context, &registers) ||
	    !guest_kernel_can_run(&registers))
		return;
	look_at_ticks(kernel);
	runs = !kernel->restarted && guest_kernel_runs(newest(kernel), options->view, &registers);
	if (!runs && !kernel->lost && is_certain(kernel, &registers))
		lose(kernel);
	if (runs)
		kernel->doubts = 0;
	if (runs && kernel->lost)
		regain(kernel);
}

static void find_other(struct collector_kernel *kernel, uint64_t now)
{
	struct guest_kernel *found = find(kernel, now);

	if (found && (kernel->restarted || !guest_kernel_same(found, newest(kernel))))
		kernel->other = found;
	else
		guest_kernel_free(found);
}

static int take_newer(struct collector_kernel *kernel, struct guest_kernel *newer)
{
	const struct guest_kernel *older = newest(kernel);
	int error = keep(kernel, newer);

	if (error)
		return error;
	publish(kernel, newer);
	return collector_image_set_modules(kernel, older, newer);
}

/* It is set some time after the kernel has started. */
static int tell_hostname(struct collector_kernel *kernel)
{
	char hostname[COLLECTOR_HOSTNAME_SIZE];

	if (!newest(kernel) || collector_hostname(newest(kernel), kernel->options->view, hostname))
		return 0;
	return perf_data_writer_set_guest(kernel->writer, NULL, hostname);
}

/*
 * The symbols of the modules of LIST, which were seen a moment ago. If others are there now, or memory is
 * missing, the recording goes on without their names, until the next try.
 */
static void refresh(struct collector_kernel *kernel, const struct guest_module *list, size_t count)
{
	struct guest_kernel *newer;

	if (kernel->found_count >= PUBLISHED_MAX)
		return;
	if (guest_kernel_refresh(&newer, newest(kernel), kernel->options->view)) {
		log_debug("the guest's modules can't be read: %s", error_message());
		return;
	}
	check_runs(kernel); /* else what was read is of nobody knows whom */
	if (!kernel->lost && !kernel->doubts &&
	    guest_modules_are_same(newer->modules, newer->module_count, list, count))
		kernel->as_known = !take_newer(kernel, newer);
	else
		guest_kernel_free(newer);
}

static void take_seen(void *context, const struct guest_module *module, uint64_t time)
{
	struct collector_kernel *kernel = context;

	collector_places_seen(&kernel->modules.places, module, time);
}

/* What vCPUs found while they took samples. */
static void take_presence(struct collector_kernel *kernel)
{
	for (size_t i = 0; i < kernel->found_count; i++)
		module_presence_each_seen(guest_kernel_presence(kernel->found[i].kernel), take_seen, kernel);
}

/* To the file, if one is open. */
static int tell_modules(struct collector_kernel *kernel)
{
	return kernel->writer && kernel->mapped ? collector_image_map_modules(kernel) : 0;
}

/* The names of the modules of LIST, to the cache. Looks are to go on meanwhile, for most of the time. */
static void rename_modules(struct collector_kernel *kernel, uint64_t now, const struct guest_module *list,
			   size_t count)
{
	uint64_t begun = sample_clock();

	if (!kernel->changed || now < kernel->next_refresh)
		return;
	if (!kernel->as_known)
		refresh(kernel, list, count);
	if (kernel->writer && kernel->mapped)
		cache_symbols(kernel);
	kernel->changed = !kernel->as_known;
	kernel->next_refresh = now + REFRESH_INTERVAL + REFRESH_SHARE * (sample_clock() - begun);
}

/* LOOK saw the modules of LIST. */
static int take_look(struct collector_kernel *kernel, uint64_t now, const struct collector_look *look,
		     const struct guest_module *list, size_t count)
{
	bool as_known =
		guest_modules_are_same(newest(kernel)->modules, newest(kernel)->module_count, list, count);

	if (!as_known || !kernel->as_known) {
		take_presence(kernel);
		if (collector_image_see_modules(kernel, list, count, look))
			return 0; /* memory's fault: as if nobody had looked */
		kernel->changed = true;
		if (guest_kernel_expect(kernel->found[kernel->found_count - 1].kernel, list, count))
			log_debug("no room for the guest's modules: new ones have no names yet");
	}
	kernel->look = *look;
	kernel->looked = true;
	kernel->as_known = as_known;
	rename_modules(kernel, now, list, count);
	return tell_modules(kernel);
}

/* None of the modules is known to be there any more. */
static int give_up(struct collector_kernel *kernel)
{
	log_debug("the guest's modules have no names from here on: %s", error_message());
	take_presence(kernel);
	return collector_places_stop(&kernel->modules.places, &kernel->look) ? 0 : tell_modules(kernel);
}

static int look_at_modules(struct collector_kernel *kernel, uint64_t now)
{
	struct collector_look look = begin_look();
	struct guest_module *list;
	size_t count;
	int error;

	kernel->looked = kernel->modules.places.stopped;
	if (kernel->looked || now < kernel->next_look)
		return 0;
	kernel->next_look = now + LOOK_INTERVAL;
	error = guest_kernel_list_modules(newest(kernel), kernel->options->view, &list, &count);
	end_look(&look);
	if (error)
		return look.begun - kernel->look.begun < BROKEN_MAX ? 0 : give_up(kernel);
	check_runs(kernel); /* else what was read is of nobody knows whom */
	error = kernel->lost || kernel->doubts ? 0 : take_look(kernel, now, &look, list, count);
	free(list);
	return error;
}

/* Names that were given are used also where no Linux was found. */
static int introduce_given(struct collector_kernel *kernel)
{
	int error = collector_image_describe(kernel, NULL);

	return error ? error : write_known(kernel);
}

int collector_kernel_turn(struct collector_kernel *kernel, uint64_t now)
{
	if (!kernel->mapped && kernel->given && !collector_image_given_is_linux(kernel))
		return introduce_given(kernel);
	if (!newest(kernel))
		return kernel->mapped ? 0 : find_first(kernel, now);
	check_runs(kernel);
	if (kernel->lost && kernel->found_count < PUBLISHED_MAX)
		find_other(kernel, now);
	return kernel->lost ? 0 : look_at_modules(kernel, now);
}

bool collector_kernel_replaced(const struct collector_kernel *kernel)
{
	return kernel->other;
}

/* Names that were given are of one build. */
static void drop_given(struct collector_kernel *kernel, const struct guest_kernel *older)
{
	if (!kernel->given || !older || !strcmp(older->version_banner, kernel->other->version_banner))
		return;
	log_warning(
		"the names that were given are not of the kernel that the guest runs now: its own are used");
	symbols_free(kernel->given);
	kernel->given = NULL;
}

static void free_found(struct collector_kernel *kernel)
{
	for (size_t i = 0; i < kernel->found_count; i++)
		guest_kernel_free(kernel->found[i].kernel);
	free(kernel->found);
	kernel->found = NULL;
	kernel->found_count = 0;
}

/* The names go with the kernel that they are of; no vCPU runs. */
static void forget(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;

	if (!kernel->lost && options->lost)
		options->lost(options->context);
	if (options->publish)
		options->publish(options->context, NULL);
	free_found(kernel);
	kernel->lost = false;
}

void collector_kernel_end_boot(struct collector_kernel *kernel)
{
	collector_modules_free(&kernel->modules);
	kernel->image = (struct kernel_image){ 0 };
	kernel->boot = (struct build_id_cache_boot){ 0 };
	kernel->places_told = 0;
	kernel->mapped = kernel->restarted = kernel->looked = kernel->changed = false;
	kernel->ticks = kernel->next_find = kernel->next_look = kernel->next_refresh = 0;
	kernel->find_interval = FIND_INTERVAL_MIN;
}

int collector_kernel_begin_boot(struct collector_kernel *kernel)
{
	struct guest_kernel *other = kernel->other;

	if (!other) {
		forget(kernel);
		return 0;
	}
	drop_given(kernel, newest(kernel));
	kernel->other = NULL;
	kernel->lost = false;
	return introduce(kernel, other);
}

bool collector_kernel_settled(const struct collector_kernel *kernel)
{
	return kernel->mapped && (!newest(kernel) || kernel->lost || kernel->looked);
}

/* What no last look saw ended at the one before. */
static int look_last(struct collector_kernel *kernel)
{
	int error = 0;

	kernel->looked = false;
	for (int i = 0; i < LAST_LOOKS && !error && !kernel->looked; i++) {
		kernel->next_look = kernel->next_refresh = 0;
		error = look_at_modules(kernel, 0);
	}
	return error || kernel->looked ? error : give_up(kernel);
}

/* Where no Linux was found, its code is seen as the latest registers see it. */
static void take_paging(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;
	struct guest_registers registers;

	if (!newest(kernel) && options->registers && options->registers(options->context, &registers))
		kernel->paging = registers.paging;
}

int collector_kernel_finish(struct collector_kernel *kernel)
{
	int error = 0;

	if (newest(kernel)) {
		error = kernel->lost ? 0 : look_last(kernel);
	} else if (!kernel->mapped) {
		kernel->next_find = 0;
		error = find_first(kernel, 0);
	}
	if (!error && !kernel->mapped && kernel->given) {
		log_warning(
			"the guest's kernel was not found in its memory: names are those of %s as they stand there",
			kernel->options->kallsyms ? kernel->options->kallsyms : kernel->options->vmlinux);
		error = introduce_given(kernel);
	}
	if (kernel->lost || !kernel->writer) /* what there was to read is not there any more, or for nobody */
		return error;
	if (!error)
		error = tell_hostname(kernel);
	take_paging(kernel);
	if (!error && kernel->mapped && *kernel->cache && !kernel->cache_failed)
		cache_result(kernel,
			     build_id_cache_add_code(kernel->cache, &kernel->image, kernel->options->view,
						     &kernel->paging, &kernel->boot));
	return error;
}

void collector_kernel_free(struct collector_kernel *kernel)
{
	free_found(kernel);
	guest_kernel_free(kernel->other);
	symbols_free(kernel->given);
	collector_modules_free(&kernel->modules);
}

const char *collector_kernel_release(const struct collector_kernel *kernel)
{
	return newest(kernel) ? newest(kernel)->release : "";
}
