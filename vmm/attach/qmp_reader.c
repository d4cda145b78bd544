/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qmp_reader.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "shared/thread_start.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/qmp_text.h"
#include "vmm/attach/rights.h"

/* A read uses QEMU's main loop and its big lock: at most this fraction of the time, on average. */
#define READ_SHARE 10
/*
 * While a command runs, libvirt blocks other users of the domain, and QEMU's main loop waits
 * off-CPU until KVM vCPUs leave the guest (QEMU: do_run_on_cpu()): at most this fraction of the
 * time.
 */
#define WAIT_SHARE 2
/* Between attempts to reconnect, and between queries of the vCPUs. */
#define TRY_INTERVAL   NS_PER_S
#define QUERY_INTERVAL NS_PER_S
/* Between queries of memory, which take QEMU some ms each. */
#define SLOTS_INTERVAL (30 * NS_PER_S)
#define OPEN_TIME      10 /* s */
#define CLOSE_TIME     1  /* s */
enum qmp_reader_state { QMP_READER_OPENING, QMP_READER_RUNNING, QMP_READER_FAILED };

struct qmp_reader {
	char *socket, *domain, *uri; /* of the monitor's address; owned */
	struct vmm_process
		process;   /* with its own descriptors: the thread may outlive the attachment */
	uint64_t interval; /* ns */
	int main_fd;       /* schedstat of QEMU's main loop, the first thread; -1: unreadable */
	int stop_fd;       /* eventfd */

	pthread_mutex_t lock; /* protects all that follows */
	pthread_cond_t changed;
	enum qmp_reader_state state;
	int error; /* with the text, if FAILED */
	char error_text[ERROR_MESSAGE_SIZE];
	atomic_bool stop; /* set with the lock, read without */
	bool ended;
	bool abandoned; /* the thread frees this */
	struct qmp_vcpu vcpus[VMM_VCPUS_MAX];
	size_t vcpu_count;
	struct vmm_slot slots[VMM_SLOTS_MAX];
	size_t slot_count;
	struct qmp_samples samples;
	struct qmp_reader_statistics statistics;
	uint64_t first_read; /* ns */

	/* Owned by the monitor thread. */
	struct thread_check thread;
	struct monitor *monitor;                                    /* NULL: not connected */
	uint64_t next_try, next_query, next_slots_query, next_read; /* ns */
	bool warned;
};

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* CPU time */

/* ns on a CPU or waiting for one; 0: unknown */
static uint64_t read_runnable(int fd)
{
	struct thread_cpu_times times;

	return thread_cpu_times_read(fd, &times) ? times.ran + times.waited : 0;
}

/* Samples */

/* 0.5 to 1.5 times the interval, so that periodic work of the guest cannot synchronize. */
static uint64_t random_interval(uint64_t interval)
{
	uint32_t number = UINT32_MAX / 2;

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
		number = UINT32_MAX / 2;
	return interval / 2 + (uint64_t)((double)interval * number / UINT32_MAX);
}

/* The part of TOOK that QEMU's main loop was runnable; all of it if unknown. */
static uint64_t main_loop_time(const struct qmp_reader *reader, uint64_t wanted_before,
			       uint64_t took)
{
	uint64_t wanted = read_runnable(reader->main_fd) - wanted_before;

	return wanted && wanted < took ? wanted : took;
}

/* Costs make the interval longer but not less random: a constant rest would be a period. */
static void schedule_read(struct qmp_reader *reader, uint64_t begun, uint64_t took,
			  uint64_t main_loop)
{
	uint64_t rest = MAX(main_loop * READ_SHARE, took * WAIT_SHARE);

	reader->next_read = begun + random_interval(MAX(reader->interval, rest));
}

static void add_samples(struct qmp_reader *reader, const char *text, uint64_t begun, uint64_t time,
			uint64_t took, uint64_t main_loop)
{
	pthread_mutex_lock(&reader->lock);
	qmp_samples_add_text(&reader->samples, text, time);
	if (!reader->statistics.samples++)
		reader->first_read = begun;
	reader->statistics.time += took;
	reader->statistics.main_loop += main_loop;
	reader->statistics.elapsed = begun + took - reader->first_read;
	pthread_mutex_unlock(&reader->lock);
}

static int read_registers(struct qmp_reader *reader)
{
	uint64_t wanted = read_runnable(reader->main_fd), begun = now(),
		 time = clock_ns(CLOCK_MONOTONIC_RAW);
	uint64_t took, main_loop;
	json_t *text = NULL;
	int error = monitor_execute_hmp(reader->monitor, "info registers -a", &text);

	took = now() - begun;
	main_loop = main_loop_time(reader, wanted, took);
	schedule_read(reader, begun, took, main_loop);
	if (error)
		return error;
	add_samples(reader, json_string_value(text), begun, time + took / 2, took, main_loop);
	json_decref(text);
	return 0;
}

/* vCPUs */

static int query_vcpus(struct qmp_reader *reader)
{
	struct qmp_vcpu *vcpus = calloc(VMM_VCPUS_MAX, sizeof(*vcpus));
	json_t *result = NULL;
	int error, count;

	if (!vcpus)
		return error_set(-ENOMEM, "no memory for the vCPUs");
	error = monitor_execute(reader->monitor, "query-cpus-fast", NULL, &result);
	count = error ? error : qmp_parse_vcpus(result, vcpus, VMM_VCPUS_MAX);
	if (!error)
		json_decref(result);
	if (count >= 0) {
		pthread_mutex_lock(&reader->lock);
		memcpy(reader->vcpus, vcpus, (size_t)count * sizeof(vcpus[0]));
		reader->vcpu_count = (size_t)count;
		pthread_mutex_unlock(&reader->lock);
	}
	free(vcpus);
	reader->next_query = now() + QUERY_INTERVAL;
	return count < 0 ? count : 0;
}

/* Memory */

static bool query_hva(struct qmp_reader *reader, struct vmm_slot *slot)
{
	char command[40];
	json_t *text = NULL;
	bool known;

	snprintf(command, sizeof(command), "gpa2hva %#" PRIx64, slot->gpa);
	if (monitor_execute_hmp(reader->monitor, command, &text))
		return false;
	known = qmp_parse_hva(json_string_value(text), &slot->hva);
	json_decref(text);
	return known;
}

/* Leaves out ranges that are not in QEMU's own memory. */
static size_t query_hvas(struct qmp_reader *reader, struct vmm_slot *slots, size_t count)
{
	size_t known = 0;

	for (size_t i = 0; i < count; i++)
		if (query_hva(reader, &slots[i]))
			slots[known++] = slots[i];
	return known;
}

/* Without this, memory is searched in the process's mappings. */
static void query_slots(struct qmp_reader *reader)
{
	struct vmm_slot slots[VMM_SLOTS_MAX];
	json_t *text = NULL;
	size_t count = 0;

	reader->next_slots_query = now() + SLOTS_INTERVAL;
	if (!monitor_execute_hmp(reader->monitor, "info mtree -f", &text)) {
		count = query_hvas(reader, slots,
				   qmp_parse_memory(json_string_value(text), slots, VMM_SLOTS_MAX));
		json_decref(text);
	}
	log_debug("QEMU's monitor reports %zu ranges of guest memory", count);
	if (!count)
		return;
	pthread_mutex_lock(&reader->lock);
	memcpy(reader->slots, slots, count * sizeof(slots[0]));
	reader->slot_count = count;
	pthread_mutex_unlock(&reader->lock);
}

/* TCG keeps RIP of a running vCPU up to date since QEMU 7.2; KVM always does. */
static int check_version(struct qmp_reader *reader)
{
	const json_t *version;
	json_t *result = NULL;
	json_int_t major, minor;
	int error = monitor_execute(reader->monitor, "query-version", NULL, &result);

	if (error)
		return error;
	version = json_object_get(result, "qemu");
	major = json_integer_value(json_object_get(version, "major"));
	minor = json_integer_value(json_object_get(version, "minor"));
	json_decref(result);
	if (!reader->process.monitored || major > 7 || (major == 7 && minor >= 2))
		return 0;
	return error_set(-ENOTSUP,
			 "QEMU %lld.%lld does not update the program counter during emulation, "
			 "so it cannot be sampled; 7.2 or later can",
			 (long long)major, (long long)minor);
}

static int open_monitor(struct qmp_reader *reader)
{
	const struct monitor_address address = { .socket = reader->socket,
						 .domain = reader->domain,
						 .uri = reader->uri };
	int error;

	THREAD_CHECK(&reader->thread);
	error = monitor_open(&reader->monitor, &address, &reader->process, reader->stop_fd);
	if (!error)
		error = check_version(reader);
	if (!error)
		error = query_vcpus(reader);
	if (!error)
		query_slots(reader);
	return error;
}

/* The monitor thread */

static void set_state(struct qmp_reader *reader, int error)
{
	pthread_mutex_lock(&reader->lock);
	reader->state = error ? QMP_READER_FAILED : QMP_READER_RUNNING;
	reader->error = error;
	if (error)
		snprintf(reader->error_text, sizeof(reader->error_text), "%s", error_message());
	pthread_cond_broadcast(&reader->changed);
	pthread_mutex_unlock(&reader->lock);
}

static void drop_monitor(struct qmp_reader *reader)
{
	if (atomic_load(&reader->stop))
		return;
	if (!reader->warned && !vmm_process_ended(&reader->process))
		log_warning("%s; trying again until the VM ends", error_message());
	reader->warned = true;
	monitor_close(reader->monitor);
	reader->monitor = NULL;
	reader->next_try = now() + TRY_INTERVAL;
}

static void try_again(struct qmp_reader *reader)
{
	if (open_monitor(reader)) {
		drop_monitor(reader);
		return;
	}
	pthread_mutex_lock(&reader->lock);
	qmp_samples_count_gap(&reader->samples, reader->interval);
	pthread_mutex_unlock(&reader->lock);
	log_info("QEMU's monitor answers again");
	reader->warned = false;
}

static int run_due(struct qmp_reader *reader)
{
	uint64_t time = now();
	int error = time >= reader->next_query ? query_vcpus(reader) : 0;

	if (!error && time >= reader->next_slots_query)
		query_slots(reader);
	return !error && time >= reader->next_read ? read_registers(reader) : error;
}

static void run_once(struct qmp_reader *reader)
{
	THREAD_CHECK(&reader->thread);
	if (!reader->monitor) {
		if (now() >= reader->next_try)
			try_again(reader);
	} else if (run_due(reader)) {
		drop_monitor(reader);
	}
}

static void wait_until_due(const struct qmp_reader *reader)
{
	struct pollfd stop = { .fd = reader->stop_fd, .events = POLLIN };
	uint64_t due = reader->monitor ? reader->next_read : reader->next_try, time = now();
	uint64_t left = due > time ? due - time : 0;
	const struct timespec wait = { .tv_sec = (time_t)(left / NS_PER_S),
				       .tv_nsec = (long)(left % NS_PER_S) };

	ppoll(&stop, 1, &wait, NULL);
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void free_reader(struct qmp_reader *reader)
{
	qmp_samples_free(&reader->samples);
	monitor_close(reader->monitor);
	close_fd(reader->main_fd);
	close_fd(reader->stop_fd);
	close_fd(reader->process.pid_fd);
	close_fd(reader->process.directory);
	pthread_mutex_destroy(&reader->lock);
	pthread_cond_destroy(&reader->changed);
	free(reader->socket);
	free(reader->domain);
	free(reader->uri);
	free(reader);
}

static void end_thread(struct qmp_reader *reader)
{
	bool abandoned;

	pthread_mutex_lock(&reader->lock);
	reader->ended = true;
	abandoned = reader->abandoned;
	pthread_cond_broadcast(&reader->changed);
	pthread_mutex_unlock(&reader->lock);
	if (abandoned)
		free_reader(reader);
}

/* Keeps what is needed to reconnect. */
static int drop_rights(const struct qmp_reader *reader)
{
	const struct monitor_address address = { .socket = reader->socket };
	char path[MONITOR_SOCKET_PATH];
	const struct rights_file socket = { .path = path, .mode = W_OK };
	int error = reader->domain ? 0 : monitor_socket(&address, &reader->process, path);

	return error ? error : rights_keep(&socket, !reader->domain, false);
}

static void *run(void *context)
{
	struct qmp_reader *reader = context;
	int error;

	error = open_monitor(reader);
	if (!error)
		error = drop_rights(reader);
	set_state(reader, error);
	while (!error && !atomic_load(&reader->stop)) {
		run_once(reader);
		wait_until_due(reader);
	}
	end_thread(reader);
	return NULL;
}

/* The owner's functions */

static bool copy_text(char **copy, const char *text)
{
	*copy = text ? strdup(text) : NULL;
	return !text || *copy;
}

static int fill(struct qmp_reader *reader, const struct monitor_address *address,
		const struct vmm_process *process)
{
	reader->process = *process;
	reader->process.pid_fd = fcntl(process->pid_fd, F_DUPFD_CLOEXEC, 0);
	reader->process.directory = fcntl(process->directory, F_DUPFD_CLOEXEC, 0);
	reader->main_fd = openat(process->directory, "schedstat", O_RDONLY | O_CLOEXEC);
	reader->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (reader->process.pid_fd < 0 || reader->process.directory < 0 || reader->stop_fd < 0)
		return error_set(-errno, "cannot create descriptors: %s", strerror(errno));
	if (!copy_text(&reader->socket, address->socket) ||
	    !copy_text(&reader->domain, address->domain) || !copy_text(&reader->uri, address->uri))
		return error_set(-ENOMEM, "no memory for QEMU's monitor");
	return 0;
}

static int start_thread(struct qmp_reader *reader)
{
	pthread_t thread;
	int error;

	reader->ended = false; /* the thread may set it immediately */
	error = thread_start(&thread, "monitor", run, reader);
	if (error)
		reader->ended = true;
	else
		pthread_detach(thread);
	return error ? error_set(error, "cannot start the thread for QEMU's monitor: %s",
				 strerror(-error))
		     : 0;
}

/* Waits until DONE is true, for at most SECONDS; with the lock. */
static void wait_until(struct qmp_reader *reader, bool (*done)(const struct qmp_reader *reader),
		       time_t seconds)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds;
	while (!done(reader) &&
	       !pthread_cond_clockwait(&reader->changed, &reader->lock, CLOCK_MONOTONIC, &end))
		;
}

static bool has_opened(const struct qmp_reader *reader)
{
	return reader->state != QMP_READER_OPENING;
}

static bool has_ended(const struct qmp_reader *reader)
{
	return reader->ended;
}

static int wait_for_vcpus(struct qmp_reader *reader)
{
	int error;

	pthread_mutex_lock(&reader->lock);
	wait_until(reader, has_opened, OPEN_TIME);
	if (reader->state == QMP_READER_OPENING)
		error = error_set(-ETIMEDOUT, "the monitor of process %d (%s) does not answer",
				  reader->process.pid, reader->process.name);
	else
		error = reader->error ? error_set(reader->error, "%s", reader->error_text) : 0;
	pthread_mutex_unlock(&reader->lock);
	return error;
}

int qmp_reader_start(struct qmp_reader **result, const struct monitor_address *address,
		     const struct vmm_process *process, unsigned int frequency)
{
	struct qmp_reader *reader = calloc(1, sizeof(*reader));
	int error;

	if (!reader)
		return error_set(-ENOMEM, "no memory for QEMU's monitor");
	assert(frequency && frequency <= QMP_READER_FREQUENCY_MAX);
	reader->interval = NS_PER_S / frequency;
	reader->ended = true;
	pthread_mutex_init(&reader->lock, NULL);
	pthread_cond_init(&reader->changed, NULL);
	error = fill(reader, address, process);
	if (!error)
		error = start_thread(reader);
	if (!error)
		error = wait_for_vcpus(reader);
	if (error)
		qmp_reader_stop(reader);
	else
		*result = reader;
	return error;
}

size_t qmp_reader_vcpus(struct qmp_reader *reader, struct qmp_vcpu *vcpus)
{
	size_t count;

	pthread_mutex_lock(&reader->lock);
	count = reader->vcpu_count;
	memcpy(vcpus, reader->vcpus, count * sizeof(vcpus[0]));
	pthread_mutex_unlock(&reader->lock);
	return count;
}

size_t qmp_reader_slots(struct qmp_reader *reader, struct vmm_slot *slots)
{
	size_t count;

	pthread_mutex_lock(&reader->lock);
	count = reader->slot_count;
	memcpy(slots, reader->slots, count * sizeof(slots[0]));
	pthread_mutex_unlock(&reader->lock);
	return count;
}

int qmp_reader_add(struct qmp_reader *reader, const struct vmm_vcpu *vcpu)
{
	int error;

	pthread_mutex_lock(&reader->lock);
	error = qmp_samples_add_vcpu(&reader->samples, &reader->process, vcpu);
	pthread_mutex_unlock(&reader->lock);
	return error;
}

void qmp_reader_remove(struct qmp_reader *reader, unsigned int id)
{
	pthread_mutex_lock(&reader->lock);
	qmp_samples_remove_vcpu(&reader->samples, id);
	pthread_mutex_unlock(&reader->lock);
}

size_t qmp_reader_consume(struct qmp_reader *reader, struct qmp_sample *samples, size_t max,
			  uint64_t *lost)
{
	size_t count;

	pthread_mutex_lock(&reader->lock);
	count = qmp_samples_consume(&reader->samples, samples, max, lost);
	pthread_mutex_unlock(&reader->lock);
	return count;
}

void qmp_reader_statistics(struct qmp_reader *reader, struct qmp_reader_statistics *statistics)
{
	pthread_mutex_lock(&reader->lock);
	*statistics = reader->statistics;
	pthread_mutex_unlock(&reader->lock);
}

void qmp_reader_stop(struct qmp_reader *reader)
{
	const uint64_t one = 1;
	bool ended;

	pthread_mutex_lock(&reader->lock);
	atomic_store(&reader->stop, true);
	if (reader->stop_fd >= 0 && write(reader->stop_fd, &one, sizeof(one)) < 0)
		log_debug("the monitor thread is already ending");
	wait_until(reader, has_ended, CLOSE_TIME);
	ended = reader->ended;
	reader->abandoned = !ended;
	pthread_mutex_unlock(&reader->lock);
	if (ended)
		free_reader(reader);
}
