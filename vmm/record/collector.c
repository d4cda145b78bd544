// SPDX-License-Identifier: Apache-2.0
#include "vmm/record/collector.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/record/collector_state.h"

/* Rings are looked at this often, woken or not; it is far less than they hold at 10 kHz. */
#define LOOK_INTERVAL_MS 50
/*
 * Where samples come late anyhow (options.delay), they are waited for longer, once the kernel was
 * looked for so many times: who has many idle VMs pays for each look.
 */
#define LOOK_INTERVAL_LATE_MS 250
#define LOOKS_BEFORE_LATE     100
/* There, too, once nothing has come for so long, besides the time that samples wait, that nothing
 * waits any more: what comes wakes the collector.
 */
#define LOOK_INTERVAL_QUIET_MS 2000
#define QUIET_AFTER            (500 * NS_PER_MS)

/*
 * Samples wait so long for what happened before them. A vCPU's own ring is
 * behind by the time between two looks at most; what the guest itself tells comes through its
 * scheduler.
 */
#define WINDOW          (50 * NS_PER_MS)
#define WINDOW_SIDEBAND (500 * NS_PER_MS)
/* A guest that stands still tells nothing; so long it is waited for. */
#define WINDOW_LONGEST (5000 * NS_PER_MS)

/* The guest's agent has sent the symbols of what it tells of long before. */
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

static bool comes_late(const struct collector *collector)
{
	return collector->options.delay >= LOOK_INTERVAL_LATE_MS * NS_PER_MS;
}

/* What the resolver gives out, in order of time. */
static void write_sample(void *context, const struct attributed_sample *sample)
{
	struct collector *collector = context;

	if (!collector_is_writing(collector))
		return;
	collector->file_samples++;
	collector_note_error(collector,
			     collector_output_sample(&collector->output, sample,
						     collector_user_kernel(&collector->kernel),
						     collector->jit.code));
}

static void write_sideband(void *context, const struct sideband *record)
{
	struct collector *collector = context;

	if (collector->options.files)
		flight_sideband_keep(&collector->told, record);
	if (collector_is_writing(collector))
		collector_note_error(collector,
				     collector_output_sideband(&collector->output, record));
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
	all->kernel_found = collector->kernel.mapped;
	collector_losses(collector, &all->losses);
	snprintf(all->release, sizeof(all->release), "%s",
		 collector_kernel_release(&collector->kernel));
	pthread_mutex_unlock(&collector->lock);
}

/* A guest that tells of itself is waited for. */
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
			.images = &collector->kernel.images,
			.window = window_of(options),
			.longest = WINDOW_LONGEST,
			.reach = options->sideband_ring_count ? RESOLVER_REACH + options->delay : 0,
			.sample = write_sample,
			.sideband = write_sideband,
			.context = collector,
		});
}

/* All that waits goes out: it is of the time before. */
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

/* Its processes are gone. */
static void forget_what_was_told(struct collector *collector)
{
	uint64_t missed = collector->told.missed;

	flight_sideband_free(&collector->told);
	collector->told.missed = missed;
}

/* Between two kernels: a file has names of one. */
static void begin_boot(struct collector *collector)
{
	int error = restart_resolver(collector);

	forget_what_was_told(collector);
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

/*
 * A guest that tells of itself is asked for the whole tables, and has some time to send them: what
 * it does not tell of, as it lost that event, has its names from memory.
 */
static void find_symbols(struct collector *collector, uint64_t now)
{
	if (!collector->user_symbols)
		return;
	user_symbols_delay(collector->user_symbols,
			   collector->output.state &&
					   file_state_has_reports(collector->output.state)
				   ? AGENT_TIME
				   : 0);
	collector_user_find_symbols(&collector->kernel, collector->user_symbols, now);
}

/* The rings first, then the kernel: what is sampled in a new module comes to be known before its
 * round ends.
 */
static void drain(struct collector *collector)
{
	struct collector_statistics counts = { 0 };
	uint64_t time;

	collector->come = false;
	resolver_begin_pass(collector->resolver, clock_ns(CLOCK_MONOTONIC_RAW));
	collector_rings_take(collector, &counts);
	collector_user_settle(&collector->kernel);
	collector_jit_look(&collector->jit, &collector->kernel);
	resolver_flush(collector->resolver);
	if (flight_sideband_is_due(&collector->told))
		flight_sideband_forget(&collector->told, resolver_settled(collector->resolver));
	time = collector_now();
	if (collector->come)
		collector->last_come = time;
	collector_user_make_tables(&collector->kernel, collector->tables, time);
	find_symbols(collector, time);
	if (!collector->error)
		collector_note_error(collector, collector_kernel_turn(&collector->kernel, time));
	if (collector_kernel_replaced(&collector->kernel))
		begin_boot(collector);
	collector_kernel_reclaim(&collector->kernel);
	if (collector->options.turn)
		collector->options.turn(collector->options.context);
	collector_files_write_out(collector, time);
	collector_files_turn(collector, time);
	update_statistics(collector, &counts);
}

/* The next file's time is kept. */
static int quiet_interval(const struct collector *collector, uint64_t time)
{
	uint64_t left =
		collector->next_file > time ? (collector->next_file - time) / NS_PER_MS + 1 : 1;

	return !collector->options.files || left > LOOK_INTERVAL_QUIET_MS ? LOOK_INTERVAL_QUIET_MS
									  : (int)left;
}

static bool is_quiet(const struct collector *collector, uint64_t time)
{
	const struct collector_options *options = &collector->options;
	uint64_t wait = window_of(options) + (options->sideband_ring_count ? WINDOW_LONGEST : 0);

	return time - collector->last_come > wait + QUIET_AFTER &&
	       !(collector->flight && flight_waits(collector->flight));
}

static int look_interval(struct collector *collector)
{
	uint64_t time = collector_now();

	if (!comes_late(collector) || collector->looks < LOOKS_BEFORE_LATE) {
		collector->looks++;
		return LOOK_INTERVAL_MS;
	}
	return is_quiet(collector, time) ? quiet_interval(collector, time) : LOOK_INTERVAL_LATE_MS;
}

static void wait_for_samples(struct collector *collector)
{
	uint64_t ignored;
	size_t count = collector->wake_count;

	if (poll(collector->wakes, count, look_interval(collector)) <= 0)
		return;
	for (size_t i = 0; i < count; i++)
		if (collector->wakes[i].revents & POLLIN &&
		    read(collector->wakes[i].fd, &ignored, sizeof(ignored)) < 0)
			continue;
}

/* The guest stands still, and its memory is as it was. */
static void take_reset(struct collector *collector)
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

/* Before the names that are known at the end: what fails of those takes no sample with it. */
static void write_last_samples(struct collector *collector)
{
	collector_files_tell_counts(collector);
	collector_note_error(collector, perf_data_writer_write_out(collector->output.writer));
}

static void *collect(void *argument)
{
	struct collector *collector = argument;
	struct collector_statistics counts = { 0 };
	sigset_t all;

	/* Signals are the main thread's; a broken pipe and a full limit come back as errors. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	pthread_setname_np(pthread_self(), "collector");
	while (!atomic_load(&collector->stop)) {
		wait_for_samples(collector);
		drain(collector);
		if (collector->flight) {
			flight_turn(collector->flight);
			collector_jit_write(&collector->jit);
		}
		take_reset(collector);
	}
	drain(collector);
	collector_user_last_symbols(&collector->kernel, collector->user_symbols);
	resolver_finish(collector->resolver);
	collector_rings_take_last_losses(collector, &counts);
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
		return error_set(-errno, "can't make the collector's eventfd: %s", strerror(errno));
	for (size_t i = 0; i < count; i++)
		collector->wakes[i] =
			(struct pollfd){ ring_event_fd(collector->options.rings[i]), POLLIN, 0 };
	for (size_t i = 0; comes_late(collector) && i < collector->options.sideband_ring_count; i++)
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

static struct collector *make(const struct collector_options *options)
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
	collector->tables = user_tables_new(options->symfs);
	collector->told.base.store.account = options->account;
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
	flight_sideband_free(&collector->told);
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

static int start_thread(struct collector *collector)
{
	int error = -pthread_create(&collector->thread, NULL, collect, collector);

	return error ? error_set(error, "can't start the collector's thread: %s", strerror(-error))
		     : 0;
}

/* That there is no cache, collector_cache_open() says. */
static int make_user_symbols(struct collector *collector)
{
	int error = collector->options.buildid_cache ? user_symbols_create(&collector->user_symbols,
									   collector->options.names)
						     : 0;

	if (!error && collector->options.buildid_cache)
		error = collector_jit_init(&collector->jit, collector->options.names,
					   collector->options.account);
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
	struct collector *collector = make(options);
	int error;

	assert(options->ring_count % options->output.vcpus == 0);
	if (!collector || !collector->wakes || !collector->last_time || !collector->lost ||
	    !collector->sideband_lost || !collector->tables)
		error = error_set(-ENOMEM, "no memory for the collector");
	else
		error = start(collector);
	if (!error)
		*result = collector;
	else if (collector)
		destroy(collector);
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
		log_debug("the collector is woken by its next look");
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
