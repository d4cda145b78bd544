/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_kernel.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/reported_kernel.h"
#include "vmm/record/collector_kernel_parts.h"
#include "vmm/symbols/btf_file.h"
#include "vmm/symbols/kallsyms_file.h"

/* Consecutive stops without the kernel after which it is considered gone. */
#define DOUBTS_MAX 3
/* Interval of requests to the agent for its report on the kernel; they get 1/SHARE of the time. */
#define REPORT_INTERVAL (2000 * NS_PER_MS)
#define REPORT_SHARE    20

const struct guest_kernel *collector_kernel_newest(const struct collector_kernel *kernel)
{
	return kernel->found_count ? kernel->found[kernel->found_count - 1] : NULL;
}

static int load_given(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;

	if (options->kallsyms)
		return kallsyms_file_load(&kernel->given, options->kallsyms);
	if (options->vmlinux)
		return image_parser_kernel(options->parser, &kernel->file, &kernel->given);
	return 0;
}

int collector_kernel_init(struct collector_kernel *kernel, const struct collector_options *options)
{
	*kernel = (struct collector_kernel){ .options = options };
	collector_cache_open(kernel);
	if (options->btf) {
		int error = btf_file_load(options->btf, &kernel->btf, &kernel->btf_size);

		if (error)
			return error;
	}
	return load_given(kernel);
}

static int append(struct collector_kernel *kernel, struct guest_kernel *found)
{
	if (array_reserve(&kernel->found, &kernel->found_capacity, kernel->found_count + 1)) {
		guest_kernel_free(found);
		return error_set(-ENOMEM, "no memory for the guest's kernel");
	}
	kernel->boot.report_used = false;
	kernel->found[kernel->found_count++] = found;
	kernel->paging = found->paging;
	return 0;
}

void collector_kernel_reclaim(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;
	size_t gone = kernel->found_count ? kernel->found_count - 1 : 0;

	THREAD_CHECK(&kernel->thread);
	if (options->settle)
		options->settle(options->context);
	collector_scans_reclaim(kernel);
	if (!gone)
		return;
	for (size_t i = 0; i < gone; i++)
		guest_kernel_free(kernel->found[i]);
	kernel->found[0] = kernel->found[gone];
	kernel->found_count = 1;
}

static void publish(struct collector_kernel *kernel, const struct guest_kernel *found)
{
	const struct collector_options *options = kernel->options;

	if (options->publish)
		options->publish(options->context, found);
}

bool collector_kernel_is_program(const struct collector_kernel *kernel)
{
	return kernel->given && kernel->options->vmlinux && !collector_image_given_is_linux(kernel);
}

/* Writes what is known of the kernel to the cache and the open file. */
static int write_known(struct collector_kernel *kernel)
{
	int error;

	if (!kernel->writer) {
		kernel->boot.mapped = true;
		return 0;
	}
	collector_cache_symbols(kernel);
	error = collector_image_map(kernel);
	if (!error && *collector_kernel_release(kernel))
		error = perf_data_writer_set_guest(kernel->writer, collector_kernel_release(kernel),
						   NULL);
	if (!error && collector_kernel_is_program(kernel))
		error = collector_image_map_program(kernel);
	return error;
}

int collector_kernel_begin_file(struct collector_kernel *kernel, struct perf_data_writer *writer,
				const char *path)
{
	THREAD_CHECK(&kernel->thread);
	kernel->writer = writer;
	kernel->path = path;
	kernel->boot.bounds_written = 0;
	return kernel->boot.mapped ? write_known(kernel) : 0;
}

void collector_kernel_end_file(struct collector_kernel *kernel)
{
	THREAD_CHECK(&kernel->thread);
	kernel->writer = NULL;
	kernel->path = NULL;
}

/* The unwinder is published first: without it samples have no call chains, and the cache takes
 * time. */
static int make_known(struct collector_kernel *kernel, struct guest_kernel *found)
{
	int error = append(kernel, found);

	collector_tasks_reset(kernel);
	kernel->boot.scan = kernel->find_scan;
	kernel->boot.scanned = kernel->boot.current = true;
	if (!error) {
		publish(kernel, found);
		error = collector_image_describe(kernel, found);
	}
	if (error) /* invalid, or no memory: the recording continues unsymbolized */
		return 0;
	return write_known(kernel);
}

/* Counts as work of the search, too: a guest can change its kernel without end. */
static int introduce(struct collector_kernel *kernel, struct guest_kernel *found)
{
	uint64_t begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	int error = make_known(kernel, found);

	cpu_budget_charge(&kernel->pace.work, kernel->pace.work.time,
			  clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun);
	return error;
}

/* Applies the given BTF to *FOUND, and reads the modules with it. */
static int use_given_btf(const struct collector_kernel *kernel, struct guest_kernel **found)
{
	const struct guest_view *view = kernel->options->view;
	struct guest_kernel *newer;
	int error = guest_kernel_use_btf(*found, view, span_of(kernel->btf, kernel->btf_size));

	if (!error)
		error = guest_kernel_refresh(&newer, *found, view);
	if (error)
		return error;
	guest_kernel_free(*found);
	*found = newer;
	return 0;
}

static void complete_by_btf(const struct collector_kernel *kernel, struct guest_kernel **found)
{
	const struct collector_options *options = kernel->options;

	if ((*found)->tasks.known)
		return;
	if (kernel->btf && use_given_btf(kernel, found))
		log_warning("%s is not used: %s", options->btf, error_message());
	collector_tasks_warn_first(kernel, *found);
}

static bool is_same_stop(const struct guest_registers *one, const struct guest_registers *other)
{
	return one->rip == other->rip && one->rsp == other->rsp &&
	       one->paging.cr3 == other->paging.cr3;
}

/* Reading a remote guest's memory takes CPU time elsewhere: all of the time counts. */
static uint64_t work_of_search(const struct collector_kernel *kernel, uint64_t lasted,
			       uint64_t processed)
{
	return kernel->options->view->remote ? lasted : cpu_budget_cost(lasted, processed);
}

/* Requests the agent's report if that is due. True: there is a new one. */
static bool request_report(struct collector_kernel *kernel, uint64_t now)
{
	const struct collector_options *options = kernel->options;
	struct collector_scan scan = collector_scan_begin();
	struct reported_kernel *report;

	if (!options->kernel_report || now < kernel->boot.next_report)
		return false;
	report = options->kernel_report(options->context,
					kernel->reported ? kernel->reported->modules_hash : 0);
	kernel->boot.next_report =
		now + REPORT_INTERVAL + REPORT_SHARE * (collector_scan_begin().begun - scan.begun);
	if (!report)
		return false;
	/* Only the newest kernel refers to the report, and it gets the new one below. */
	if (kernel->found_count) {
		struct guest_kernel *newest = kernel->found[kernel->found_count - 1];

		assert(newest);
		newest->reported = NULL;
	}
	reported_kernel_free(kernel->reported);
	kernel->reported = report;
	kernel->boot.report_used = false;
	return true;
}

/* Where the kernel's memory does not have the list of modules. */
static void apply_report(struct collector_kernel *kernel, uint64_t now)
{
	struct guest_kernel *newest = kernel->found[kernel->found_count - 1];

	if (guest_kernel_has_module_list(newest))
		return;
	/* Once per report: checking it takes time. */
	request_report(kernel, now);
	if (!kernel->reported || kernel->boot.report_used)
		return;
	kernel->boot.report_used = true;
	if (guest_kernel_use_report(newest, kernel->reported))
		log_debug("%s", error_message());
}

/* By memory alone, or else with the agent's report. ns of CPU time in *PROCESSED. */
static int search(struct collector_kernel *kernel, const struct guest_registers *registers,
		  struct guest_kernel **found, uint64_t *processed)
{
	const struct guest_view *view = kernel->options->view;
	uint64_t begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	int error = guest_kernel_find(found, view, registers);

	if (error && kernel->reported)
		error = guest_kernel_find_reported(found, view, registers, kernel->reported);
	*processed = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
	return error;
}

/* If memory alone did not suffice for a while, the agent's report is requested, too. */
static bool is_due(struct collector_kernel *kernel, const struct guest_registers *registers,
		   uint64_t now)
{
	if (search_pace_is_slow(&kernel->pace) && request_report(kernel, now))
		return true;
	return search_pace_is_due(&kernel->pace, registers, now);
}

/* Searches for the running kernel, at growing intervals; NULL: none was found. */
static struct guest_kernel *find(struct collector_kernel *kernel, uint64_t now)
{
	const struct collector_options *options = kernel->options;
	struct guest_registers registers;
	uint64_t lasted, processed;
	struct guest_kernel *found;
	int error;

	if (!search_pace_allows(&kernel->pace, now) || !options->registers ||
	    !options->registers(options->context, &registers) || !is_due(kernel, &registers, now))
		return NULL;
	kernel->find_scan = collector_scan_begin();
	error = search(kernel, &registers, &found, &processed);
	lasted = collector_scan_begin().begun - kernel->find_scan.begun;
	search_pace_searched(&kernel->pace, &registers, now + lasted,
			     work_of_search(kernel, lasted, processed));
	if (error) {
		log_debug("no guest kernel yet: %s", error_message());
		return NULL;
	}
	complete_by_btf(kernel, &found);
	collector_scan_end(&kernel->find_scan);
	return found;
}

static int find_first(struct collector_kernel *kernel, uint64_t now)
{
	struct guest_kernel *found = find(kernel, now);

	return found ? introduce(kernel, found) : 0;
}

/* A kernel of the same build may start where the previous one was: its clock starts again. */
static bool has_restarted(struct collector_kernel *kernel)
{
	uint64_t ticks, before = kernel->boot.ticks;

	if (!guest_kernel_ticks(collector_kernel_newest(kernel), kernel->options->view, &ticks))
		return false;
	kernel->boot.ticks = ticks;
	return ticks < before;
}

static void lose(struct collector_kernel *kernel, enum collector_kernel_state state)
{
	const struct collector_options *options = kernel->options;

	kernel->state = state;
	kernel->doubts = 0;
	search_pace_reset(&kernel->pace);
	log_debug("the guest's kernel %s is no longer running",
		  collector_kernel_newest(kernel)->release);
	if (options->lost)
		options->lost(options->context);
}

void collector_kernel_publish_again(struct collector_kernel *kernel)
{
	THREAD_CHECK(&kernel->thread);
	publish(kernel, collector_kernel_newest(kernel));
}

void collector_kernel_drop_modules(const struct collector_kernel *kernel)
{
	if (kernel->options->modules)
		kernel->options->modules(kernel->options->context, NULL, 0);
}

/* It was not visible for a while. */
static void regain(struct collector_kernel *kernel)
{
	kernel->state = KERNEL_RUNNING;
	if (kernel->boot.modules.timeline.stopped)
		collector_kernel_drop_modules(kernel);
	collector_kernel_publish_again(kernel);
}

/*
 * The vCPU has continued, and its page tables may have been freed with their process: one stop
 * proves nothing. What vCPUs find out at their own stops is certain, and keeps samples
 * unsymbolized meanwhile.
 */
static void doubt(struct collector_kernel *kernel, const struct guest_registers *registers)
{
	if (!kernel->doubts || !is_same_stop(registers, &kernel->doubted))
		kernel->doubts++;
	kernel->doubted = *registers;
	if (kernel->doubts >= DOUBTS_MAX)
		lose(kernel, KERNEL_LOST);
}

void collector_kernel_check_runs(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;
	struct guest_registers registers;

	THREAD_CHECK(&kernel->thread);
	if (!options->registers || !options->registers(options->context, &registers) ||
	    !guest_kernel_can_run(&registers))
		return;
	if (has_restarted(kernel)) {
		if (kernel->state == KERNEL_RUNNING)
			lose(kernel, KERNEL_RESTARTED);
		kernel->state = KERNEL_RESTARTED;
	}
	if (kernel->state == KERNEL_RESTARTED)
		return; /* whatever runs there is another boot */
	if (!guest_kernel_is_running(collector_kernel_newest(kernel), options->view, &registers)) {
		if (kernel->state == KERNEL_RUNNING)
			doubt(kernel, &registers);
		return;
	}
	kernel->doubts = 0;
	if (kernel->state == KERNEL_LOST)
		regain(kernel);
}

static void find_other(struct collector_kernel *kernel, uint64_t now)
{
	struct guest_kernel *found = find(kernel, now);

	if (found && (kernel->state == KERNEL_RESTARTED ||
		      !guest_kernels_equal(found, collector_kernel_newest(kernel))))
		kernel->other = found;
	else
		guest_kernel_free(found);
}

int collector_kernel_adopt(struct collector_kernel *kernel, struct guest_kernel *newer)
{
	const struct guest_kernel *older = collector_kernel_newest(kernel);
	int error = append(kernel, newer);

	THREAD_CHECK(&kernel->thread);
	if (error)
		return error;
	publish(kernel, newer);
	return collector_image_set_modules(kernel, older, newer);
}

/* The host name is set some time after the start. */
int collector_kernel_write_hostname(struct collector_kernel *kernel)
{
	char hostname[COLLECTOR_HOSTNAME_SIZE];

	THREAD_CHECK(&kernel->thread);
	if (!collector_kernel_newest(kernel) ||
	    collector_hostname(collector_kernel_newest(kernel), kernel->options->view, hostname))
		return 0;
	return perf_data_writer_set_guest(kernel->writer, NULL, hostname);
}

/* Given symbols are used even if no Linux was found. */
static int publish_given(struct collector_kernel *kernel)
{
	int error = collector_image_describe(kernel, NULL);

	return error ? error : write_known(kernel);
}

int collector_kernel_update(struct collector_kernel *kernel, uint64_t now)
{
	int error = 0;

	THREAD_CHECK(&kernel->thread);
	if (!kernel->boot.mapped && kernel->given && !collector_image_given_is_linux(kernel))
		return publish_given(kernel);
	if (!collector_kernel_newest(kernel))
		return kernel->boot.mapped ? 0 : find_first(kernel, now);
	collector_kernel_check_runs(kernel);
	if (collector_kernel_is_lost(kernel))
		find_other(kernel, now);
	if (!collector_kernel_is_lost(kernel))
		apply_report(kernel, now);
	if (!collector_kernel_is_lost(kernel))
		error = collector_tasks_update(kernel, now);
	return error || collector_kernel_is_lost(kernel) ? error
							 : collector_scans_update(kernel, now);
}

/* Given symbols belong to one build. */
static void drop_given(struct collector_kernel *kernel, const struct guest_kernel *older)
{
	if (!kernel->given || !older ||
	    !strcmp(older->version_banner, kernel->other->version_banner))
		return;
	log_warning(
		"the given symbols do not belong to the kernel that the guest runs now: its own symbols are used");
	symbols_free(kernel->given);
	kernel->given = NULL;
}

static void free_found(struct collector_kernel *kernel)
{
	for (size_t i = 0; i < kernel->found_count; i++)
		guest_kernel_free(kernel->found[i]);
	free(kernel->found);
	kernel->found = NULL;
	kernel->found_count = kernel->found_capacity = 0;
}

/* The symbols go with their kernel; no vCPU runs. */
static void drop_kernels(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;

	if (!collector_kernel_is_lost(kernel) && options->lost)
		options->lost(options->context);
	if (options->publish)
		options->publish(options->context, NULL);
	free_found(kernel);
	kernel->state = KERNEL_RUNNING;
}

static void free_boot(struct collector_kernel *kernel)
{
	collector_modules_free(&kernel->boot.modules);
	image_catalog_free(&kernel->boot.images);
}

void collector_kernel_end_boot(struct collector_kernel *kernel)
{
	THREAD_CHECK(&kernel->thread);
	free_boot(kernel);
	kernel->boot = (struct collector_boot){ 0 };
	search_pace_reset(&kernel->pace);
}

int collector_kernel_begin_boot(struct collector_kernel *kernel)
{
	struct guest_kernel *other = kernel->other;

	THREAD_CHECK(&kernel->thread);
	if (!other) {
		drop_kernels(kernel);
		return 0;
	}
	drop_given(kernel, collector_kernel_newest(kernel));
	kernel->other = NULL;
	kernel->state = KERNEL_RUNNING;
	return introduce(kernel, other);
}

bool collector_kernel_settled(const struct collector_kernel *kernel)
{
	return kernel->boot.mapped && (!collector_kernel_newest(kernel) ||
				       collector_kernel_is_lost(kernel) || kernel->boot.scanned);
}

/* Without Linux, code is read through the page tables of the latest stop. */
static void update_paging(struct collector_kernel *kernel)
{
	const struct collector_options *options = kernel->options;
	struct guest_registers registers;

	if (!collector_kernel_newest(kernel) && options->registers &&
	    options->registers(options->context, &registers))
		kernel->paging = registers.paging;
}

int collector_kernel_finish(struct collector_kernel *kernel)
{
	int error = 0;

	THREAD_CHECK(&kernel->thread);
	if (collector_kernel_newest(kernel)) {
		collector_tasks_warn_last(kernel);
		error = collector_kernel_is_lost(kernel) ? 0 : collector_scans_finish(kernel);
	} else if (!kernel->boot.mapped) {
		kernel->pace = (struct search_pace){ 0 };
		error = find_first(kernel, 0);
	}
	if (!error && !kernel->boot.mapped && kernel->given) {
		log_warning(
			"the guest's kernel was not found in its memory: the symbols of %s are used at their own addresses",
			kernel->options->kallsyms ? kernel->options->kallsyms
						  : kernel->options->vmlinux);
		error = publish_given(kernel);
	}
	if (collector_kernel_is_lost(kernel) ||
	    !kernel->writer) /* there is nothing left to read, or nowhere to write it */
		return error;
	if (!error)
		error = collector_kernel_write_hostname(kernel);
	update_paging(kernel);
	if (!error && kernel->boot.mapped)
		collector_cache_code(kernel);
	return error;
}

void collector_kernel_free(struct collector_kernel *kernel)
{
	free_found(kernel);
	guest_kernel_free(kernel->other);
	symbols_free(kernel->given);
	reported_kernel_free(kernel->reported);
	free(kernel->btf);
	free_boot(kernel);
}

const char *collector_kernel_release(const struct collector_kernel *kernel)
{
	return collector_kernel_newest(kernel) ? collector_kernel_newest(kernel)->release : "";
}
