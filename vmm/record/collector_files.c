/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/record/collector_state.h"

/* Samples older than this survive a kill. */
#define FLUSH_INTERVAL (250 * NS_PER_MS)
/* Rounds end this often: a reader of a pipe can show the samples before, and drop them. */
#define ROUND_INTERVAL (1000 * NS_PER_MS)

void collector_losses(const struct collector *collector, struct losses *losses)
{
	resolver_losses(collector->resolver, losses);
	losses_add(losses, &collector->earlier);
	losses->counts[LOSS_GUEST_BREAKPOINT] = collector->guest_lost;
	losses->counts[LOSS_RING_FULL] += collector->lost_before;
	for (size_t i = 0; i < collector->options.ring_count; i++)
		losses->counts[LOSS_RING_FULL] += collector->lost[i];
	losses->counts[LOSS_SIDEBAND_DROPPED] += collector->reports.missed;
	collector_output_losses(&collector->output, losses);
}

static void write_losses(struct collector *collector)
{
	struct losses losses;

	collector_losses(collector, &losses);
	for (int i = 0; i < LOSS_COUNT; i++)
		losses.counts[i] -= collector->before_file.counts[i];
	perf_data_writer_set_losses(collector->output.writer, &losses);
}

static void read_times(const struct collector *collector, struct perf_data_times *times)
{
	*times = (struct perf_data_times){ 0 };
	if (collector->options.times)
		collector->options.times(collector->options.context, times);
}

static void write_times(struct collector *collector)
{
	struct perf_data_times times;

	read_times(collector, &times);
	perf_data_times_subtract(&times, &collector->times_before_file);
	perf_data_writer_set_times(collector->output.writer, &times);
}

static void write_counts(struct collector *collector)
{
	write_times(collector);
	collector_note_error(collector,
			     collector_output_counts(&collector->output, &collector->options,
						     clock_ns(CLOCK_MONOTONIC_RAW)));
}

void collector_files_write_counts(struct collector *collector)
{
	THREAD_CHECK(&collector->owner);
	write_losses(collector);
	write_counts(collector);
}

void collector_files_write_out(struct collector *collector, uint64_t time)
{
	THREAD_CHECK(&collector->owner);
	if (!collector_is_writing(collector) || time < collector->next_flush)
		return;
	collector->next_flush = time + FLUSH_INTERVAL;
	write_losses(collector);
	if (time >= collector->next_round && collector_kernel_settled(&collector->kernel)) {
		collector->next_round = time + ROUND_INTERVAL;
		collector_jit_write(&collector->jit);
		write_counts(collector);
		collector_note_error(collector,
				     perf_data_writer_flush(collector->output.writer,
							    resolver_settled(collector->resolver)));
	} else {
		collector_note_error(collector,
				     perf_data_writer_write_out(collector->output.writer));
	}
	if (collector->error)
		return;
	collector->readable = collector->closed_samples + collector->file_samples;
	collector->readable_here = collector->file_samples;
}

static bool is_regular_file(const char *path)
{
	struct stat status;

	return !stat(path, &status) && S_ISREG(status.st_mode);
}

static int open_output(struct collector *collector)
{
	struct perf_data_options options = collector->options.output;
	const struct collector_output_options output = collector_output_options(&collector->kernel);
	int error;

	if (collector->options.files)
		options.room = collector->options.files->room;
	if (*collector->path)
		options.path = collector->path;
	error = collector_output_open(&collector->output, &options, &output);
	if (error)
		return error;
	collector->files++;
	collector->one_file = !is_regular_file(options.path);
	return collector_kernel_begin_file(&collector->kernel, collector->output.writer,
					   options.path);
}

/* Hands over a file that is complete, or ended with ERROR. */
static void hand_over_file(struct collector *collector, int error)
{
	const struct collector_files *files = collector->options.files;
	const struct collector_file file = { collector->path, collector->file_samples, error };

	files->end(files->context, &file);
	collector->closed_samples += collector->file_samples;
	collector->file_samples = 0;
}

/* The file begins with earlier events: its readers have no other file. */
static int write_reports(struct collector *collector)
{
	struct flight_sideband_list list;
	int error;

	flight_sideband_advance(&collector->reports, resolver_settled(collector->resolver));
	error = flight_sideband_export(&collector->reports, &list);
	for (size_t i = 0; i < list.count && !error; i++)
		error = file_state_sideband(collector->output.state, list.records[i]);
	flight_sideband_list_free(&list);
	return error;
}

/* Published before the file exists. */
static void publish_empty_file(struct collector *collector)
{
	collector->readable_here = 0;
	pthread_mutex_lock(&collector->lock);
	collector->statistics.readable_here = 0;
	pthread_mutex_unlock(&collector->lock);
}

/* Without a file nothing is written until the next one is due. */
static void begin_kept_file(struct collector *collector)
{
	const struct collector_files *files = collector->options.files;
	int error;

	collector->next_file = collector_now() + files->interval;
	publish_empty_file(collector);
	if (files->begin(files->context, collector->path, sizeof(collector->path)))
		return;
	error = open_output(collector);
	if (!error)
		error = write_reports(collector);
	if (error && collector->output.writer) {
		collector_kernel_end_file(&collector->kernel);
		collector_output_close(&collector->output);
	}
	if (error)
		hand_over_file(collector, error);
}

int collector_files_begin(struct collector *collector)
{
	THREAD_CHECK(&collector->owner);
	if (!collector->options.files)
		return open_output(collector);
	begin_kept_file(collector);
	return 0;
}

static int end_file(struct collector *collector)
{
	int error;

	collector_files_write_counts(collector);
	collector_losses(collector, &collector->before_file);
	read_times(collector, &collector->times_before_file);
	collector->closed_bytes += perf_data_writer_bytes(collector->output.writer);
	collector_output_losses(&collector->output, &collector->earlier);
	error = collector_output_close(&collector->output);
	collector_kernel_end_file(&collector->kernel);
	if (!collector->options.files)
		return error;
	hand_over_file(collector, error);
	return 0;
}

/* A file that could not be completed is closed as it is. */
static void give_up_file(struct collector *collector)
{
	int error = collector->error;

	collector->closed_bytes += perf_data_writer_bytes(collector->output.writer);
	collector_output_losses(&collector->output, &collector->earlier);
	collector_kernel_end_file(&collector->kernel);
	collector_output_close(&collector->output);
	error_set(error, "%s", collector->message);
	hand_over_file(collector, error);
	collector->error = 0;
}

void collector_files_end(struct collector *collector)
{
	THREAD_CHECK(&collector->owner);
	if (collector_is_writing(collector))
		end_file(collector);
	else if (collector->output.writer)
		give_up_file(collector);
}

void collector_files_update(struct collector *collector, uint64_t time)
{
	THREAD_CHECK(&collector->owner);
	if (!collector->options.files)
		return;
	if (collector->error)
		collector_files_end(collector);
	if (time < collector->next_file)
		return;
	if (collector_is_writing(collector))
		collector_note_error(collector,
				     collector_kernel_write_hostname(&collector->kernel));
	collector_files_end(collector);
	begin_kept_file(collector);
}

void collector_files_hide_kernel(struct collector *collector)
{
	THREAD_CHECK(&collector->owner);
	if (!collector->kernel.writer) /* it was logged before */
		return;
	log_warning(
		"the guest runs another kernel from here on: its functions are unsymbolized in %s: "
		"perf.data has one kernel and no other file can follow this one",
		*collector->path ? collector->path : collector->options.output.path);
	perf_data_writer_hide_kernel(collector->output.writer);
	collector_kernel_end_file(&collector->kernel);
}

int collector_files_next(struct collector *collector)
{
	const char *first = collector->options.output.path;
	int error = end_file(collector);

	THREAD_CHECK(&collector->owner);
	if (error || collector->options.files)
		return error ? error : collector_files_begin(collector);
	if (snprintf(collector->path, sizeof(collector->path), "%s.%u", first, collector->files) >=
	    (int)sizeof(collector->path))
		return error_set(-ENAMETOOLONG, "%s: the file name is too long", first);
	log_info("the guest's next kernel is recorded in %s", collector->path);
	return collector_files_begin(collector);
}
