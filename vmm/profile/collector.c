// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/collector.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/sample.h"
#include "vmm/profile/collector_jit.h"
#include "vmm/profile/collector_kernel.h"
#include "vmm/profile/collector_output.h"
#include "vmm/profile/collector_user.h"
#include "vmm/profile/flight_sideband.h"
#include "vmm/profile/resolver.h"

#define MILLISECOND 1000000ull

/* Rings are looked at this often, woken or not; it is far less than they hold at 10 kHz. */
#define LOOK_INTERVAL_MS 50
/*
 * Where samples come late anyhow (options.delay), they are waited for longer, once the kernel was looked for
 * so many times: who has many idle VMs pays for each look.
 */
#define LOOK_INTERVAL_LATE_MS 250
#define LOOKS_BEFORE_LATE     100
/* There, too, once nothing has come for so long that nothing waits any more: what comes wakes the collector.
 */
#define LOOK_INTERVAL_QUIET_MS 2000
#define QUIET_AFTER            (WINDOW_LONGEST + 1000 * MILLISECOND)
/* What is older than this survives a kill. */
#define FLUSH_INTERVAL (250 * MILLISECOND)
/* A round may end this often: what lies before it can be shown, and forgotten, by whoever reads a pipe. */
#define ROUND_INTERVAL (1000 * MILLISECOND)

/*
 * Samples wait so long for what happened before them. A vCPU's own ring is
 * behind by the time between two looks at most; what the guest itself tells comes through its scheduler.
 */
#define WINDOW          (50 * MILLISECOND)
#define WINDOW_SIDEBAND (500 * MILLISECOND)
/* A guest that stands still tells nothing; so long it is waited for. */
#define WINDOW_LONGEST (5000 * MILLISECOND)

/* A guest may change its kernel again and again, and is not to fill the host's disk with files. */
#define FILES_MAX 1000

struct collector {
	struct collector_options options;
	struct collector_output output; /* without a writer: nothing is written as it comes */
	struct flight *flight;          /* then; else NULL */
	struct collector_kernel kernel;
	struct user_tables *tables;        /* of the images of its user space */
	struct user_symbols *user_symbols; /* NULL: there is no cache to put them into */
	struct collector_jit jit;          /* functions that its processes made at run time */
	struct resolver *resolver;         /* its rings: the vCPUs', then those of sideband */
	pthread_t thread;
	struct pollfd *wakes; /* the rings', where they come late those of sideband, our own, and the flight
				 recorder's */
	size_t wake_count;
	unsigned int looks; /* of the first */
	bool come;          /* there was something in the rings at the last look */
	uint64_t last_come; /* ns, when there was */
	int stop_fd;        /* eventfd: stop, or the guest is to be reset */
	atomic_bool stop;
	bool reset;                /* is asked for; with reset_lock, as reset_done */
	pthread_cond_t reset_done; /* it is not any more */
	pthread_mutex_t reset_lock;
	char path[PATH_MAX];         /* of the output, if it is not the one of the options */
	uint64_t next_file;          /* ns; with options.files */
	struct flight_sideband told; /* what the guest told, for files to begin with; with options.files */
	uint64_t file_samples;       /* in the file that is open */
	unsigned int files;          /* that were begun */
	bool one_file;               /* it is none that another one could follow */
	uint64_t closed_bytes;       /* of those that are complete */
	struct losses earlier;       /* that resolvers and files before this one counted */
	uint64_t guest_lost;         /* breakpoints of the guest's own, of all files */
	struct losses before_file;   /* that are of the files before this one */
	uint64_t next_flush, next_round; /* ns */
	uint64_t *last_time;             /* for each vCPU, of its latest sample */
	uint64_t *lost;                  /* for each vCPU, samples known to be lost by its ring */
	uint64_t *sideband_lost;         /* the same of the rings of sideband */
	uint64_t lost_before;            /* by their sources, before they came to a ring */
	int error;                       /* the first one of writing; the rings are drained all the same */
	char message[ERROR_MESSAGE_SIZE];
	pthread_mutex_t lock; /* of statistics */
	struct collector_statistics statistics;
};

static uint64_t time_by(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t now(void)
{
	return time_by(CLOCK_MONOTONIC);
}

/* Errors happen on the collector's thread and are told on the one that stops it. */
static void note_error(struct collector *collector, int error)
{
	if (!error || collector->error)
		return;
	collector->error = error;
	snprintf(collector->message, sizeof(collector->message), "%s", error_message());
	if (!collector->options.files)
		log_error("recording ends here: %s", collector->message);
}

static bool comes_late(const struct collector *collector)
{
	return collector->options.delay >= LOOK_INTERVAL_LATE_MS * MILLISECOND;
}

static bool is_writing(const struct collector *collector)
{
	return collector->output.writer && !collector->error;
}

static void count_sample(struct collector_statistics *statistics, const struct sample *sample)
{
	if (sample->event)
		return; /* hits are counted by whoever watches */
	statistics->samples++;
	statistics->host += !!(sample->flags & SAMPLE_HOST);
	statistics->kernel += !sample->cpl && !(sample->flags & SAMPLE_HOST);
	statistics->cost += sample->cost;
	statistics->weight += sample->period;
}

static void take_sample(struct collector *collector, size_t ring, const struct ring_record *record,
			struct collector_statistics *counts)
{
	const struct sample *sample =
		collector_sample(record, collector->options.output.vcpus,
				 perf_data_watches_count(collector->options.output.watches));

	if (!sample)
		return;
	collector->last_time[sample->vcpu] = sample->time;
	count_sample(counts, sample);
	collector_jit_sample(&collector->jit, collector_user_kernel(&collector->kernel), sample);
	resolver_sample(collector->resolver, ring, sample);
}

/* NULL: it was none. */
static void give_sideband(struct collector *collector, size_t ring, const struct sideband *sideband)
{
	if (sideband && collector_jit_take(&collector->jit, sideband))
		return;
	resolver_sideband(collector->resolver, ring, sideband);
	if (sideband && sideband->type == SIDEBAND_MMAP && collector->options.mapped)
		collector->options.mapped(collector->options.context, (const void *)sideband);
	if (collector->flight && sideband)
		flight_sideband(collector->flight, sideband);
}

static void take_sideband(struct collector *collector, size_t ring, const struct ring_record *record)
{
	give_sideband(collector, ring,
		      sideband_check(span_of(record->payload, record->size - sizeof(*record))));
}

/* What the resolver gives out, in order of time. */
static void write_sample(void *context, const struct attributed_sample *sample)
{
	struct collector *collector = context;

	if (!is_writing(collector))
		return;
	collector->file_samples++;
	note_error(collector, collector_output_sample(&collector->output, sample,
						      collector_user_kernel(&collector->kernel)));
}

static bool sample_tells(void *context, const struct sample *sample, uint64_t address)
{
	struct collector *collector = context;

	return collector_output_tells(collector_user_kernel(&collector->kernel), sample, address);
}

static void write_sideband(void *context, const struct sideband *record)
{
	struct collector *collector = context;

	if (collector->options.files)
		flight_sideband_keep(&collector->told, record);
	if (is_writing(collector))
		note_error(collector, collector_output_sideband(&collector->output, record));
}

static void take_event(struct collector *collector, const struct ring_record *record)
{
	const struct sample_event *event =
		collector_event(record, collector->options.output.vcpus,
				perf_data_watches_count(collector->options.output.watches));

	if (event && is_writing(collector))
		note_error(collector, collector_output_event(&collector->output, event));
}

static void take_guest_lost(struct collector *collector, const struct ring_record *record)
{
	const struct sample_guest_lost *lost = collector_guest_lost(record, collector->options.output.vcpus);

	collector->guest_lost += lost ? lost->count : 0;
}

static void note_lost(struct collector *collector, size_t ring, uint64_t count,
		      struct collector_statistics *counts)
{
	uint32_t vcpu = (uint32_t)(ring % collector->options.output.vcpus);

	counts->lost += count;
	if (is_writing(collector))
		note_error(collector, collector_output_lost(&collector->output, collector->last_time[vcpu],
							    vcpu, count));
}

static void take_lost(struct collector *collector, size_t ring, const struct ring_record *record,
		      struct collector_statistics *counts)
{
	const struct ring_lost *lost = (const void *)record->payload;

	if (record->size < sizeof(*record) + sizeof(*lost))
		return;
	collector->lost[ring] += lost->count;
	note_lost(collector, ring, lost->count, counts);
}

static void take_lost_before(struct collector *collector, size_t ring, const struct ring_record *record,
			     struct collector_statistics *counts)
{
	const struct sample_lost *lost = (const void *)record->payload;

	if (record->size < sizeof(*record) + sizeof(*lost))
		return;
	collector->lost_before += lost->count;
	note_lost(collector, ring, lost->count, counts);
}

static const struct ring_record *read_ring(struct collector *collector, struct ring *ring)
{
	const struct ring_record *record = ring_read(ring);

	collector->come |= !!record;
	return record;
}

static void drain_ring(struct collector *collector, size_t index, struct collector_statistics *counts)
{
	struct ring *ring = collector->options.rings[index];
	const struct ring_record *record;

	while ((record = read_ring(collector, ring))) {
		if (record->type == RECORD_SAMPLE)
			take_sample(collector, index, record, counts);
		else if (record->type == RECORD_SIDEBAND)
			take_sideband(collector, index, record);
		else if (record->type == RECORD_EVENT)
			take_event(collector, record);
		else if (record->type == RECORD_GUEST_LOST)
			take_guest_lost(collector, record);
		else if (record->type == RING_RECORD_LOST)
			take_lost(collector, index, record, counts);
		else if (record->type == RECORD_LOST)
			take_lost_before(collector, index, record, counts);
	}
	ring_read_done(ring);
	resolver_pass_end(collector->resolver, index);
}

/* Whose time nobody knows: nothing that was told so far is sure, from the time on to which all was told. */
static void tell_sideband_lost(struct collector *collector, size_t ring, uint64_t count)
{
	const struct sideband_lost lost = {
		.head = { .size = sizeof(lost),
			  .type = SIDEBAND_LOST,
			  .time = resolver_settled(collector->resolver) },
		.count = count,
		.until = time_by(CLOCK_MONOTONIC_RAW),
	};

	give_sideband(collector, ring, &lost.head);
}

/* A ring that is full to the end has no record of it. */
static void take_sideband_losses(struct collector *collector, size_t index)
{
	uint64_t *known = &collector->sideband_lost[index];
	struct ring_statistics ring;

	ring_statistics(collector->options.sideband_rings[index], &ring);
	if (ring.lost > *known)
		tell_sideband_lost(collector, collector->options.ring_count + index, ring.lost - *known);
	*known = ring.lost;
}

static void drain_sideband_ring(struct collector *collector, size_t index)
{
	struct ring *ring = collector->options.sideband_rings[index];
	size_t number = collector->options.ring_count + index;
	const struct ring_record *record;

	while ((record = read_ring(collector, ring)))
		if (record->type == RECORD_SIDEBAND)
			take_sideband(collector, number, record);
	ring_read_done(ring);
	take_sideband_losses(collector, index);
	resolver_pass_end(collector->resolver, number);
}

static void get_losses(const struct collector *collector, struct losses *losses)
{
	resolver_losses(collector->resolver, losses);
	losses_add(losses, &collector->earlier);
	losses->counts[GUEST_BREAKPOINT_LOST] = collector->guest_lost;
	losses->counts[LOST_OVERFLOW] += collector->lost_before;
	for (size_t i = 0; i < collector->options.ring_count; i++)
		losses->counts[LOST_OVERFLOW] += collector->lost[i];
	losses->counts[SIDEBAND_MISSED] += collector->told.missed;
	collector_output_losses(&collector->output, losses);
}

static uint64_t bytes_of(const struct collector *collector)
{
	if (collector->flight)
		return flight_bytes(collector->flight);
	return collector->closed_bytes +
	       (collector->output.writer ? perf_data_writer_bytes(collector->output.writer) : 0);
}

static void update_statistics(struct collector *collector, const struct collector_statistics *counts)
{
	struct collector_statistics *all = &collector->statistics;

	pthread_mutex_lock(&collector->lock);
	all->samples += counts->samples;
	all->host += counts->host;
	all->kernel += counts->kernel;
	all->lost += counts->lost;
	all->cost += counts->cost;
	all->weight += counts->weight;
	all->bytes = bytes_of(collector);
	all->files = collector->files;
	all->kernel_found = collector->kernel.mapped;
	get_losses(collector, &all->losses);
	snprintf(all->release, sizeof(all->release), "%s", collector_kernel_release(&collector->kernel));
	pthread_mutex_unlock(&collector->lock);
}

static void tell_losses(struct collector *collector)
{
	struct losses losses;

	get_losses(collector, &losses);
	for (int i = 0; i < LOSS_COUNT; i++)
		losses.counts[i] -= collector->before_file.counts[i];
	perf_data_writer_set_losses(collector->output.writer, &losses);
}

static void tell_counts(struct collector *collector)
{
	note_error(collector, collector_output_counts(&collector->output, &collector->options,
						      time_by(CLOCK_MONOTONIC_RAW)));
}

static void write_out(struct collector *collector, uint64_t time)
{
	if (!is_writing(collector) || time < collector->next_flush)
		return;
	collector->next_flush = time + FLUSH_INTERVAL;
	tell_losses(collector);
	if (time >= collector->next_round && collector_kernel_settled(&collector->kernel)) {
		collector->next_round = time + ROUND_INTERVAL;
		collector_jit_write(&collector->jit);
		tell_counts(collector);
		note_error(collector, perf_data_writer_flush(collector->output.writer,
							     resolver_settled(collector->resolver)));
	} else {
		note_error(collector, perf_data_writer_write_out(collector->output.writer));
	}
}

/* The time up to which every vCPU has taken samples; 0 while one has taken none. */
static uint64_t time_of_all(const struct collector *collector)
{
	uint64_t time = UINT64_MAX;

	if (collector->options.publish_waits)
		return time;
	for (size_t i = 0; i < collector->options.output.vcpus; i++)
		if (collector->last_time[i] < time)
			time = collector->last_time[i];
	return time;
}

static int make_resolver(struct collector *collector)
{
	const struct collector_options *options = &collector->options;

	return resolver_create(
		&collector->resolver,
		&(struct resolver_options){
			.rings = options->ring_count + options->sideband_ring_count,
			.window = (options->sideband_ring_count ? WINDOW_SIDEBAND : WINDOW) + options->delay,
			.longest = WINDOW_LONGEST,
			.reach = options->sideband_ring_count ? RESOLVER_REACH + options->delay : 0,
			.tells = sample_tells,
			.sample = write_sample,
			.sideband = write_sideband,
			.context = collector,
		});
}

static bool is_regular_file(const char *path)
{
	struct stat status;

	return !stat(path, &status) && S_ISREG(status.st_mode);
}

static int open_output(struct collector *collector)
{
	struct perf_data_options options = collector->options.output;
	int error;

	if (collector->options.files)
		options.room = collector->options.files->room;
	if (*collector->path)
		options.path = collector->path;
	error = collector_output_open(&collector->output, &options);
	if (error)
		return error;
	if (collector_kernel_is_program(&collector->kernel))
		error = collector_output_name_page_tables(&collector->output);
	if (error)
		return error;
	collector->output.filled = collector->options.mapped;
	collector->output.context = collector->options.context;
	collector->output.jit_code = collector->jit.code;
	collector->files++;
	collector->one_file = !is_regular_file(options.path);
	return collector_kernel_begin_file(&collector->kernel, collector->output.writer, options.path);
}

/* To whoever keeps the files: one that is complete, or ended with ERROR. */
static void give_file(struct collector *collector, int error)
{
	const struct collector_files *files = collector->options.files;
	const struct collector_file file = { collector->path, collector->file_samples, error };

	files->end(files->context, &file);
	collector->file_samples = 0;
}

/* The file begins with what the guest told before: who reads it has no other. */
static int tell_what_was_told(struct collector *collector)
{
	struct flight_sideband_list list;
	int error;

	flight_sideband_forget(&collector->told, resolver_settled(collector->resolver));
	error = flight_sideband_tell(&collector->told, &list);
	for (size_t i = 0; i < list.count && !error; i++)
		error = collector_output_sideband(&collector->output, list.records[i]);
	flight_sideband_list_free(&list);
	return error;
}

/* Without a file nothing is written, until the next one's time comes. */
static void begin_kept_file(struct collector *collector)
{
	const struct collector_files *files = collector->options.files;
	int error;

	collector->next_file = now() + files->interval;
	if (files->begin(files->context, collector->path, sizeof(collector->path)))
		return;
	error = open_output(collector);
	if (!error)
		error = tell_what_was_told(collector);
	if (error && collector->output.writer) {
		collector_kernel_end_file(&collector->kernel);
		collector_output_close(&collector->output);
	}
	if (error)
		give_file(collector, error);
}

static int begin_file(struct collector *collector)
{
	if (!collector->options.files)
		return open_output(collector);
	begin_kept_file(collector);
	return 0;
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

static int end_file(struct collector *collector)
{
	int error;

	tell_losses(collector);
	tell_counts(collector);
	get_losses(collector, &collector->before_file);
	collector->closed_bytes += perf_data_writer_bytes(collector->output.writer);
	collector_output_losses(&collector->output, &collector->earlier);
	error = collector_output_close(&collector->output);
	collector_kernel_end_file(&collector->kernel);
	if (!collector->options.files)
		return error;
	give_file(collector, error);
	return 0;
}

/* What could not be written to its end is closed, as it is. */
static void give_up_file(struct collector *collector)
{
	int error = collector->error;

	collector->closed_bytes += perf_data_writer_bytes(collector->output.writer);
	collector_output_losses(&collector->output, &collector->earlier);
	collector_kernel_end_file(&collector->kernel);
	collector_output_close(&collector->output);
	error_set(error, "%s", collector->message);
	give_file(collector, error);
	collector->error = 0;
}

static void end_kept_file(struct collector *collector)
{
	if (is_writing(collector))
		end_file(collector);
	else if (collector->output.writer)
		give_up_file(collector);
}

/* One file after the other, in their time. */
static void turn_files(struct collector *collector, uint64_t time)
{
	if (!collector->options.files)
		return;
	if (collector->error)
		end_kept_file(collector);
	if (time < collector->next_file)
		return;
	if (is_writing(collector))
		note_error(collector, collector_kernel_tell_hostname(&collector->kernel));
	end_kept_file(collector);
	begin_kept_file(collector);
}

/* What comes from here on is of another kernel, and what stands in the file is not: addresses have no names.
 */
static void go_on_without_names(struct collector *collector)
{
	if (!collector->kernel.writer) /* said before */
		return;
	log_warning("the guest runs another kernel from here on: its functions have no names in %s, as "
		    "perf.data has one kernel and no other file can follow this one",
		    *collector->path ? collector->path : collector->options.output.path);
	perf_data_writer_hide_kernel(collector->output.writer);
	collector_kernel_end_file(&collector->kernel);
}

static int next_file(struct collector *collector)
{
	const char *first = collector->options.output.path;
	int error = end_file(collector);

	if (error || collector->options.files)
		return error ? error : begin_file(collector);
	if (snprintf(collector->path, sizeof(collector->path), "%s.%u", first, collector->files) >=
	    (int)sizeof(collector->path))
		return error_set(-ENAMETOOLONG, "%s is too long a name", first);
	log_info("the guest's next kernel is recorded in %s", collector->path);
	return begin_file(collector);
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
	collector->output.jit_code = collector->jit.code;
	if (is_writing(collector) && !collector->options.files &&
	    (collector->one_file || collector->files >= FILES_MAX))
		go_on_without_names(collector);
	else if (!error && is_writing(collector))
		error = next_file(collector);
	note_error(collector, error);
	note_error(collector, collector_kernel_begin_boot(&collector->kernel));
}

/* The rings first, then the kernel: what is sampled in a new module comes to be known before its round ends.
 */
static void drain(struct collector *collector)
{
	struct collector_statistics counts = { 0 };
	uint64_t time;

	collector->come = false;
	resolver_begin_pass(collector->resolver, time_by(CLOCK_MONOTONIC_RAW));
	for (size_t i = 0; i < collector->options.ring_count; i++)
		drain_ring(collector, i, &counts);
	for (size_t i = 0; i < collector->options.sideband_ring_count; i++)
		drain_sideband_ring(collector, i);
	collector_user_settle(&collector->kernel);
	collector_jit_look(&collector->jit, &collector->kernel);
	resolver_play(collector->resolver);
	if (flight_sideband_is_due(&collector->told))
		flight_sideband_forget(&collector->told, resolver_settled(collector->resolver));
	time = now();
	if (collector->come)
		collector->last_come = time;
	collector_user_make_tables(&collector->kernel, collector->tables, time);
	/* A guest that tells of itself is asked for the whole tables. */
	if (!collector->output.told_by_guest)
		collector_user_find_symbols(&collector->kernel, collector->user_symbols, time);
	if (!collector->error)
		note_error(collector, collector_kernel_turn(&collector->kernel, time));
	if (collector_kernel_replaced(&collector->kernel))
		begin_boot(collector);
	collector_kernel_reclaim(&collector->kernel, time_of_all(collector));
	if (collector->options.turn)
		collector->options.turn(collector->options.context);
	write_out(collector, time);
	turn_files(collector, time);
	update_statistics(collector, &counts);
}

/* A ring that was full to the end had no room to tell of the last losses. */
static void take_last_losses(struct collector *collector)
{
	struct collector_statistics counts = { 0 };

	for (size_t i = 0; i < collector->options.ring_count; i++) {
		struct ring_statistics ring;

		ring_statistics(collector->options.rings[i], &ring);
		if (ring.lost <= collector->lost[i])
			continue;
		note_lost(collector, i, ring.lost - collector->lost[i], &counts);
		collector->lost[i] = ring.lost;
	}
	update_statistics(collector, &counts);
}

/* The next file's time is kept. */
static int quiet_interval(const struct collector *collector, uint64_t time)
{
	uint64_t left = collector->next_file > time ? (collector->next_file - time) / MILLISECOND + 1 : 1;

	return !collector->options.files || left > LOOK_INTERVAL_QUIET_MS ? LOOK_INTERVAL_QUIET_MS
									  : (int)left;
}

static bool is_quiet(const struct collector *collector, uint64_t time)
{
	return time - collector->last_come > QUIET_AFTER &&
	       !(collector->flight && flight_waits(collector->flight));
}

static int look_interval(struct collector *collector)
{
	uint64_t time = now();

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
			note_error(collector, collector_kernel_finish(&collector->kernel));
		begin_boot(collector);
		update_statistics(collector, &(struct collector_statistics){ 0 });
		collector->reset = false;
		pthread_cond_signal(&collector->reset_done);
	}
	pthread_mutex_unlock(&collector->reset_lock);
}

static void *collect(void *argument)
{
	struct collector *collector = argument;
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
	take_last_losses(collector);
	if (is_writing(collector)) {
		tell_losses(collector);
		tell_counts(collector);
	}
	if (collector->flight)
		flight_end(collector->flight);
	else if (!collector->error)
		note_error(collector, collector_kernel_finish(&collector->kernel));
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
			(struct pollfd){ ring_event_fd(collector->options.sideband_rings[i]), POLLIN, 0 };
	collector->wakes[count++] = (struct pollfd){ collector->stop_fd, POLLIN, 0 };
	if (collector->options.flight)
		collector->wakes[count++] = (struct pollfd){ collector->options.flight->wake_fd, POLLIN, 0 };
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
	collector->wakes =
		calloc(options->ring_count + options->sideband_ring_count + 2, sizeof(collector->wakes[0]));
	collector->last_time = calloc(options->output.vcpus, sizeof(collector->last_time[0]));
	collector->lost = calloc(options->ring_count + 1, sizeof(collector->lost[0]));
	collector->sideband_lost =
		calloc(options->sideband_ring_count + 1, sizeof(collector->sideband_lost[0]));
	collector->tables = user_tables_new(options->symfs);
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

	return error ? error_set(error, "can't start the collector's thread: %s", strerror(-error)) : 0;
}

/* That there is no cache, collector_cache_open() says. */
static int make_user_symbols(struct collector *collector)
{
	int error = collector->options.buildid_cache
			    ? user_symbols_create(&collector->user_symbols, collector->options.names)
			    : 0;

	if (!error && collector->options.buildid_cache)
		error = collector_jit_init(&collector->jit, collector->options.names);
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
		error = collector->options.flight ? flight_create(&collector->flight, &collector->options,
								  &collector->kernel, &collector->jit)
						  : begin_file(collector);
	if (!error)
		error = start_thread(collector);
	if (error && collector->options.files)
		end_kept_file(collector);
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
		end_kept_file(collector);
	else if (collector->output.writer)
		close_error = collector_output_close(&collector->output);
	else if (collector->flight)
		close_error = flight_error(collector->flight);
	error = collector->error ? error_set(collector->error, "%s", collector->message) : close_error;
	if (statistics)
		*statistics = collector->statistics;
	destroy(collector);
	return error;
}
