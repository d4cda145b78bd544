/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_start.h"
#include "vmm/record/collector_state.h"

/* The rings are drained at least this often; they hold far more at 10 kHz. */
#define DRAIN_INTERVAL_MS 50
/* Where samples come late anyway (options.delay), the interval grows after this number of turns,
 * which find the kernel: with many idle VMs every turn costs. */
#define DRAIN_INTERVAL_LATE_MS 250
#define TURNS_BEFORE_LATE      100
/* There, once nothing has come for this long after the last sample was emitted, records wake the
 * collector. */
#define DRAIN_INTERVAL_QUIET_MS 2000
#define QUIET_AFTER             (500 * NS_PER_MS)

/* How long samples are held back so that sideband events can be ordered before them. A vCPU's own
 * ring is late by one drain interval at most; what the guest reports comes through its scheduler.
 */
#define WINDOW          (50 * NS_PER_MS)
#define WINDOW_SIDEBAND (500 * NS_PER_MS)
/* A guest that stands still reports nothing; samples wait for it no longer than this. */
#define WINDOW_LONGEST (5000 * NS_PER_MS)

/* The agent sends the symbols of what it reports long before this. */
#define AGENT_TIME (10000 * NS_PER_MS)

uint64_t collector_now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

void collector_note_error(struct collector *collector, int error)
{
	if (!error || collector->error)
		return;
	collector->error = error;
	snprintf(collector->message, sizeof(collector->message), "%s", error_message());
	if (!collector->options.files)
		log_error("recording ends here: %s", collector->message);
}

bool collector_is_writing(const struct collector *collector)
{
	return collector->output.writer && !collector->error;
}

static bool is_delayed(const struct collector *collector)
{
	return collector->options.delay >= DRAIN_INTERVAL_LATE_MS * NS_PER_MS;
}

/* The resolver emits in order of time. */
static void write_sample(void *context, const struct attributed_sample *sample)
{
	struct collector *collector = context;

	if (!collector_is_writing(collector))
		return;
	collector->file_samples++;
	collector_note_error(collector,
			     collector_output_sample(&collector->output, sample,
						     collector_kernel_newest(&collector->kernel),
						     collector->jit.code));
}

static void write_sideband(void *context, const struct sideband *record)
{
	struct collector *collector = context;

	if (collector->options.files)
		flight_sideband_keep(&collector->reports, record);
	if (collector_is_writing(collector))
		collector_note_error(collector,
				     file_state_sideband(collector->output.state, record));
}

static uint64_t bytes_of(const struct collector *collector)
{
	if (collector->flight)
		return flight_bytes(collector->flight);
	return collector->closed_bytes +
	       (collector->output.writer ? perf_data_writer_bytes(collector->output.writer) : 0);
}

static void update_statistics(struct collector *collector,
			      const struct collector_statistics *counts)
{
	struct collector_statistics *all = &collector->statistics;

	pthread_mutex_lock(&collector->lock);
	all->samples += counts->samples;
	all->readable = collector->readable;
	all->readable_here = collector->readable_here;
	all->host += counts->host;
	all->kernel += counts->kernel;
	all->lost += counts->lost;
	all->cost += counts->cost;
	all->weight += counts->weight;
	all->bytes = bytes_of(collector);
	all->files = collector->files;
	all->ended = collector->error && !collector->all_written && !collector->options.files;
	all->kernel_found = collector->kernel.boot.mapped;
	collector_losses(collector, &all->losses);
	snprintf(all->release, sizeof(all->release), "%s",
		 collector_kernel_release(&collector->kernel));
	pthread_mutex_unlock(&collector->lock);
}

/* Samples of a guest that reports events wait longer. */
static uint64_t window_of(const struct collector_options *options)
{
	return (options->sideband_ring_count ? WINDOW_SIDEBAND : WINDOW) + options->delay;
}

static int make_resolver(struct collector *collector)
{
	const struct collector_options *options = &collector->options;

	return resolver_create(
		&collector->resolver,
		&(struct resolver_options){
			.rings = options->ring_count + options->sideband_ring_count,
			.account = options->account,
			.images = &collector->kernel.boot.images,
			.window = window_of(options),
			.longest = WINDOW_LONGEST,
			.reach = options->sideband_ring_count ? RESOLVER_REACH + options->delay : 0,
			.sample = write_sample,
			.sideband = write_sideband,
			.context = collector,
		});
}

/* Everything that waits is emitted: it belongs to the time before. */
static int restart_resolver(struct collector *collector)
{
	struct resolver *older = collector->resolver;
	struct losses counted;
	int error;

	resolver_finish(older);
	error = make_resolver(collector);
	if (error) {
		collector->resolver = older;
		return error;
	}
	resolver_losses(older, &counted);
	losses_add(&collector->earlier, &counted);
	resolver_free(older);
	return 0;
}

/* The processes of an ended boot. */
static void drop_reports(struct collector *collector)
{
	uint64_t missed = collector->reports.missed;

	flight_sideband_free(&collector->reports);
	collector->reports.missed = missed;
}

/* Another kernel runs: a file has the symbols of one. */
static void begin_boot(struct collector *collector)
{
	int error = restart_resolver(collector);

	drop_reports(collector);
	if (collector->flight)
		flight_begin_boot(collector->flight);
	collector_kernel_end_boot(&collector->kernel);
	collector_jit_begin_boot(&collector->jit);
	if (collector_is_writing(collector) && !collector->options.files &&
	    (collector->one_file || collector->files >= COLLECTOR_FILES_MAX))
		collector_files_hide_kernel(collector);
	else if (!error && collector_is_writing(collector))
		error = collector_files_next(collector);
	collector_note_error(collector, error);
	collector_note_error(collector, collector_kernel_begin_boot(&collector->kernel));
}

/* An agent gets time to send whole symbol tables. Symbols of files that it does not report, because
 * it lost the event, are read from guest memory. */
static void find_symbols(struct collector *collector, uint64_t now)
{
	const struct file_state *file = collector->output.state;

	if (!collector->user_symbols)
		return;
	user_symbols_delay(collector->user_symbols,
			   file && file_state_has_reports(file) ? AGENT_TIME : 0);
	collector_user_find_symbols(&collector->kernel, collector->user_symbols, now);
}

/* The clock is read first: everything older is in the rings then, or late. */
static void read_rings(struct collector *collector, struct collector_statistics *counts)
{
	collector->received = false;
	resolver_begin_pass(collector->resolver, clock_ns(CLOCK_MONOTONIC_RAW));
	collector_rings_read(collector, counts);
	if (collector->received)
		collector->last_received = collector_now();
}

/* After the rings, and before samples are decided: samples refer to new images. */
static void name_images(struct collector *collector)
{
	collector_user_load(&collector->kernel);
	collector_jit_scan(&collector->jit, &collector->kernel);
}

/* After this, nothing asks for the time before what is settled. */
static void emit_settled(struct collector *collector)
{
	resolver_flush(collector->resolver);
	if (flight_sideband_is_due(&collector->reports))
		flight_sideband_advance(&collector->reports, resolver_settled(collector->resolver));
}

/* After samples were emitted: it takes time, and only later samples and reports profit. */
static void read_user_images(struct collector *collector, uint64_t time)
{
	collector_user_make_tables(&collector->kernel, collector->tables, time);
	find_symbols(collector, time);
}

/* After the rings: a module that was sampled becomes known before the round of its samples ends. A
 * boot ends with everything read that was sampled in it. */
static void follow_kernel(struct collector *collector, uint64_t time)
{
	if (!collector->error)
		collector_note_error(collector, collector_kernel_update(&collector->kernel, time));
	if (collector_kernel_replaced(&collector->kernel))
		begin_boot(collector);
	collector_kernel_reclaim(&collector->kernel);
}

/* Last: a round that ends here has everything above. */
static void write_files(struct collector *collector, uint64_t time)
{
	collector_files_write_out(collector, time);
	collector_files_update(collector, time);
}

static void drain(struct collector *collector)
{
	struct collector_statistics counts = { 0 };
	uint64_t time;

	THREAD_CHECK(&collector->owner);
	read_rings(collector, &counts);
	name_images(collector);
	emit_settled(collector);
	time = collector_now();
	read_user_images(collector, time);
	follow_kernel(collector, time);
	if (collector->options.drained)
		collector->options.drained(collector->options.context);
	write_files(collector, time);
	update_statistics(collector, &counts);
}

/* The next file begins on time. */
static int quiet_interval(const struct collector *collector, uint64_t time)
{
	uint64_t left =
		collector->next_file > time ? (collector->next_file - time) / NS_PER_MS + 1 : 1;

	return !collector->options.files || left > DRAIN_INTERVAL_QUIET_MS ? DRAIN_INTERVAL_QUIET_MS
									   : (int)left;
}

static bool is_quiet(const struct collector *collector, uint64_t time)
{
	const struct collector_options *options = &collector->options;
	uint64_t wait = window_of(options) + (options->sideband_ring_count ? WINDOW_LONGEST : 0);

	return time - collector->last_received > wait + QUIET_AFTER &&
	       !(collector->flight && flight_waits(collector->flight));
}

static int drain_interval(struct collector *collector)
{
	uint64_t time = collector_now();

	if (!is_delayed(collector) || collector->turns < TURNS_BEFORE_LATE) {
		collector->turns++;
		return DRAIN_INTERVAL_MS;
	}
	return is_quiet(collector, time) ? quiet_interval(collector, time) : DRAIN_INTERVAL_LATE_MS;
}

static void wait_for_samples(struct collector *collector)
{
	uint64_t ignored;
	size_t count = collector->wake_count;

	if (poll(collector->wakes, count, drain_interval(collector)) <= 0)
		return;
	for (size_t i = 0; i < count; i++)
		if (collector->wakes[i].revents & POLLIN &&
		    read(collector->wakes[i].fd, &ignored, sizeof(ignored)) < 0)
			continue;
}

/* The guest is stopped, and its memory unchanged. */
static void reset_boot(struct collector *collector)
{
	pthread_mutex_lock(&collector->reset_lock);
	if (collector->reset) {
		drain(collector);
		collector_user_last_symbols(&collector->kernel, collector->user_symbols);
		resolver_finish(collector->resolver);
		if (!collector->flight && !collector->error)
			collector_note_error(collector,
					     collector_kernel_finish(&collector->kernel));
		begin_boot(collector);
		update_statistics(collector, &(struct collector_statistics){ 0 });
		collector->reset = false;
		pthread_cond_signal(&collector->reset_done);
	}
	pthread_mutex_unlock(&collector->reset_lock);
}

/* Before the final symbols: if those fail, no sample is lost. */
static void write_last_samples(struct collector *collector)
{
	collector_files_write_counts(collector);
	collector_note_error(collector, perf_data_writer_write_out(collector->output.writer));
}

static void *collect(void *argument)
{
	struct collector *collector = argument;
	struct collector_statistics counts = { 0 };

	THREAD_CHECK(&collector->owner);
	while (!atomic_load(&collector->stop)) {
		wait_for_samples(collector);
		drain(collector);
		if (collector->flight) {
			flight_update(collector->flight);
			collector_jit_write(&collector->jit);
		}
		reset_boot(collector);
	}
	drain(collector);
	collector_user_last_symbols(&collector->kernel, collector->user_symbols);
	resolver_finish(collector->resolver);
	collector_rings_read_last_losses(collector, &counts);
	if (collector_is_writing(collector))
		write_last_samples(collector);
	collector->all_written = !collector->error;
	if (collector->all_written)
		collector->readable = collector->closed_samples + collector->file_samples;
	update_statistics(collector, &counts);
	if (collector->flight)
		flight_end(collector->flight);
	else if (!collector->error)
		collector_note_error(collector, collector_kernel_finish(&collector->kernel));
	collector_jit_write(&collector->jit);
	return NULL;
}

static int prepare_wakes(struct collector *collector)
{
	size_t count = collector->options.ring_count;

	collector->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (collector->stop_fd < 0)
		return error_set(-errno, "cannot create the collector's eventfd: %s",
				 strerror(errno));
	for (size_t i = 0; i < count; i++)
		collector->wakes[i] =
			(struct pollfd){ ring_event_fd(collector->options.rings[i]), POLLIN, 0 };
	for (size_t i = 0; is_delayed(collector) && i < collector->options.sideband_ring_count; i++)
		collector->wakes[count++] =
			(struct pollfd){ ring_event_fd(collector->options.sideband_rings[i]),
					 POLLIN, 0 };
	collector->wakes[count++] = (struct pollfd){ collector->stop_fd, POLLIN, 0 };
	if (collector->options.flight)
		collector->wakes[count++] =
			(struct pollfd){ collector->options.flight->wake_fd, POLLIN, 0 };
	collector->wake_count = count;
	return 0;
}

static struct collector *make(const struct collector_options *options, struct image_parser *parser)
{
	struct collector *collector = calloc(1, sizeof(*collector));

	if (!collector)
		return NULL;
	collector->options = *options;
	collector->stop_fd = -1;
	pthread_mutex_init(&collector->lock, NULL);
	pthread_mutex_init(&collector->reset_lock, NULL);
	pthread_cond_init(&collector->reset_done, NULL);
	collector->wakes = calloc(options->ring_count + options->sideband_ring_count + 2,
				  sizeof(collector->wakes[0]));
	collector->last_time = calloc(options->output.vcpus, sizeof(collector->last_time[0]));
	collector->lost = calloc(options->ring_count + 1, sizeof(collector->lost[0]));
	collector->sideband_lost =
		calloc(options->sideband_ring_count + 1, sizeof(collector->sideband_lost[0]));
	collector->options.parser = parser;
	collector->owns_parser = !options->parser;
	collector->tables = user_tables_new(options->symfs, parser);
	collector->reports.base.store.account = options->account;
	return collector;
}

static void destroy(struct collector *collector)
{
	collector_kernel_free(&collector->kernel);
	user_tables_free(collector->tables);
	user_symbols_free(collector->user_symbols);
	collector_jit_free(&collector->jit);
	resolver_free(collector->resolver);
	flight_destroy(collector->flight);
	flight_sideband_free(&collector->reports);
	if (collector->owns_parser)
		image_parser_end(collector->options.parser);
	if (collector->stop_fd >= 0)
		close(collector->stop_fd);
	pthread_mutex_destroy(&collector->lock);
	pthread_mutex_destroy(&collector->reset_lock);
	pthread_cond_destroy(&collector->reset_done);
	free(collector->wakes);
	free(collector->last_time);
	free(collector->lost);
	free(collector->sideband_lost);
	free(collector);
}

/* Another thread uses all this from now on. */
static void release(struct collector *collector)
{
	thread_check_release(&collector->owner);
	thread_check_release(&collector->kernel.thread);
	if (collector->output.writer)
		perf_data_writer_release(collector->output.writer);
}

static int start_thread(struct collector *collector)
{
	int error;

	release(collector);
	/* SIGPIPE and SIGXFSZ are blocked too: writes return errors instead. */
	error = thread_start(&collector->thread, "collector", collect, collector);

	return error ? error_set(error, "cannot start the collector's thread: %s", strerror(-error))
		     : 0;
}

/* collector_cache_open() logs that there is no cache. */
static int make_user_symbols(struct collector *collector)
{
	int error =
		collector->options.buildid_cache
			? user_symbols_create(&collector->user_symbols, collector->options.names,
					      collector->options.parser)
			: 0;

	if (!error && collector->options.buildid_cache)
		error = collector_jit_init(&collector->jit, collector->options.names,
					   collector->options.account, collector->options.parser);
	return error == -ENOMEM ? error : 0;
}

static int start(struct collector *collector)
{
	int error = prepare_wakes(collector);

	if (!error)
		error = make_resolver(collector);
	if (!error)
		error = make_user_symbols(collector);
	if (!error)
		error = collector_kernel_init(&collector->kernel, &collector->options);
	if (!error)
		error = collector->options.flight
				? flight_create(&collector->flight, &collector->options,
						&collector->kernel, &collector->jit)
				: collector_files_begin(collector);
	if (!error)
		error = start_thread(collector);
	if (error && collector->options.files)
		collector_files_end(collector);
	else if (error && collector->output.writer)
		collector_output_close(&collector->output);
	return error;
}

int collector_start(struct collector **result, const struct collector_options *options)
{
	struct image_parser *parser = options->parser;
	struct collector *collector;
	int error = parser ? 0 : image_parser_start(&parser, NULL, options->vmlinux);

	assert(options->ring_count % options->output.vcpus == 0);
	if (error)
		return error;
	collector = make(options, parser);
	if (!collector || !collector->wakes || !collector->last_time || !collector->lost ||
	    !collector->sideband_lost || !collector->tables)
		error = error_set(-ENOMEM, "no memory for the collector");
	else
		error = start(collector);
	if (!error)
		*result = collector;
	else if (collector)
		destroy(collector);
	else if (!options->parser)
		image_parser_end(parser);
	return error;
}

void collector_statistics(struct collector *collector, struct collector_statistics *statistics)
{
	pthread_mutex_lock(&collector->lock);
	*statistics = collector->statistics;
	pthread_mutex_unlock(&collector->lock);
}

static void wake(struct collector *collector)
{
	const uint64_t one = 1;

	if (write(collector->stop_fd, &one, sizeof(one)) < 0)
		log_debug("the collector cannot be woken: it continues with its next turn");
}

void collector_reset(struct collector *collector)
{
	pthread_mutex_lock(&collector->reset_lock);
	collector->reset = true;
	wake(collector);
	while (collector->reset)
		pthread_cond_wait(&collector->reset_done, &collector->reset_lock);
	pthread_mutex_unlock(&collector->reset_lock);
}

int collector_stop(struct collector *collector, struct collector_statistics *statistics)
{
	int error, close_error = 0;

	atomic_store(&collector->stop, true);
	wake(collector);
	pthread_join(collector->thread, NULL);
	release(collector);
	update_statistics(collector, &(struct collector_statistics){ 0 });
	if (collector->options.files)
		collector_files_end(collector);
	else if (collector->output.writer)
		close_error = collector_output_close(&collector->output);
	else if (collector->flight)
		close_error = flight_error(collector->flight);
	error = collector->error ? error_set(collector->error, "%s", collector->message)
				 : close_error;
	if (statistics)
		*statistics = collector->statistics;
	destroy(collector);
	return error;
}
