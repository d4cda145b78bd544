/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qmp_reader.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/qmp_text.h"
#include "vmm/attach/rights.h"

/* A look takes QEMU's main loop, and its big lock: at most one part in so many, over many looks. */
#define LOOK_SHARE 10
/* Until it is answered libvirt keeps others from the domain; and QEMU's main loop waits, without
 * wanting a processor, for vCPUs of KVM to come out of the guest (QEMU: do_run_on_cpu()): at most
 * one part in so many.
 */
#define WAIT_SHARE 2
/* Between two tries of a monitor that went away, and two questions which vCPUs there are. */
#define TRY_INTERVAL NS_PER_S
#define ASK_INTERVAL NS_PER_S
/* Memory that is plugged in is noticed after so long: the question takes QEMU some milliseconds. */
#define SLOTS_INTERVAL (30 * NS_PER_S)
#define OPEN_TIME      10 /* s */
#define CLOSE_TIME     1  /* s */
enum looker_state { LOOKER_OPENS, LOOKER_WORKS, LOOKER_FAILED };

struct looker {
	char *socket, *domain, *uri; /* of the monitor's address; owned */
	struct vmm_process
		process;   /* with descriptors of its own: the thread may outlive the attachment */
	uint64_t interval; /* ns */
	int main_fd; /* schedstat of the process's first thread, QEMU's main loop; -1: it is not to
			be read */
	int stop_fd; /* eventfd */

	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t changed;
	enum looker_state state;
	int error; /* if it failed, with: */
	char error_text[ERROR_MESSAGE_SIZE];
	bool stop, ended;
	bool abandoned; /* the thread frees it */
	struct qmp_vcpu vcpus[VMM_VCPUS_MAX];
	size_t vcpu_count;
	struct vmm_slot slots[VMM_SLOTS_MAX];
	size_t slot_count;
	struct looks looks;
	struct looker_statistics statistics;
	uint64_t first_look; /* ns */

	/* The thread's alone. */
	struct monitor *monitor;                                /* NULL: there is no connection */
	uint64_t next_try, next_ask, next_ask_slots, next_look; /* ns */
	bool complained;
};

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* CPU time. */

/* ns for which it wanted a processor, whether it had one or not; or 0. */
static uint64_t read_wanted(int fd)
{
	struct thread_times times;

	return thread_times_read(fd, &times) ? times.ran + times.waited : 0;
}

/* Looks. */

static void take_look(struct looker *looker, const char *text, uint64_t time)
{
	pthread_mutex_lock(&looker->lock);
	looks_see(&looker->looks, text, time);
	pthread_mutex_unlock(&looker->lock);
}

/* From half to one and a half of the interval, so that nothing in the guest can keep its step. */
static uint64_t random_interval(uint64_t interval)
{
	uint32_t number = UINT32_MAX / 2;

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
		number = UINT32_MAX / 2;
	return interval / 2 + (uint64_t)((double)interval * number / UINT32_MAX);
}

/* Of the TOOK ns until QEMU had answered, those of its main loop; all, where the kernel does not
 * tell. */
static uint64_t time_of_main_loop(const struct looker *looker, uint64_t wanted_before,
				  uint64_t took)
{
	uint64_t wanted = read_wanted(looker->main_fd) - wanted_before;

	return wanted && wanted < took ? wanted : took;
}

static uint64_t latest_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What looks cost makes the interval longer, and not less random: a rest of one length is a step to
 * keep. */
static void plan_look(struct looker *looker, uint64_t begun, uint64_t took, uint64_t of_main_loop)
{
	uint64_t rest = latest_of(of_main_loop * LOOK_SHARE, took * WAIT_SHARE);

	looker->next_look = begun + random_interval(latest_of(looker->interval, rest));
}

static void count_look(struct looker *looker, uint64_t begun, uint64_t took, uint64_t of_main_loop)
{
	pthread_mutex_lock(&looker->lock);
	if (!looker->statistics.looks++)
		looker->first_look = begun;
	looker->statistics.time += took;
	looker->statistics.of_main_loop += of_main_loop;
	looker->statistics.elapsed = begun + took - looker->first_look;
	pthread_mutex_unlock(&looker->lock);
}

static int look(struct looker *looker)
{
	uint64_t wanted = read_wanted(looker->main_fd), begun = now(),
		 time = clock_ns(CLOCK_MONOTONIC_RAW);
	uint64_t took, of_main_loop;
	json_t *text = NULL;
	int error = monitor_human(looker->monitor, "info registers -a", &text);

	took = now() - begun;
	of_main_loop = time_of_main_loop(looker, wanted, took);
	plan_look(looker, begun, took, of_main_loop);
	if (error)
		return error;
	take_look(looker, json_string_value(text), time + took / 2);
	json_decref(text);
	count_look(looker, begun, took, of_main_loop);
	return 0;
}

/* vCPUs. */

static int ask_vcpus(struct looker *looker)
{
	struct qmp_vcpu *vcpus = calloc(VMM_VCPUS_MAX, sizeof(*vcpus));
	json_t *result = NULL;
	int error, count;

	if (!vcpus)
		return error_set(-ENOMEM, "no memory for the vCPUs");
	error = monitor_execute(looker->monitor, "query-cpus-fast", NULL, &result);
	count = error ? error : qmp_parse_vcpus(result, vcpus, VMM_VCPUS_MAX);
	if (!error)
		json_decref(result);
	if (count >= 0) {
		pthread_mutex_lock(&looker->lock);
		memcpy(looker->vcpus, vcpus, (size_t)count * sizeof(vcpus[0]));
		looker->vcpu_count = (size_t)count;
		pthread_mutex_unlock(&looker->lock);
	}
	free(vcpus);
	looker->next_ask = now() + ASK_INTERVAL;
	return count < 0 ? count : 0;
}

/* Memory. */

static bool ask_hva(struct looker *looker, struct vmm_slot *slot)
{
	char command[40];
	json_t *text = NULL;
	bool known;

	snprintf(command, sizeof(command), "gpa2hva %#" PRIx64, slot->gpa);
	if (monitor_human(looker->monitor, command, &text))
		return false;
	known = qmp_parse_hva(json_string_value(text), &slot->hva);
	json_decref(text);
	return known;
}

/* Those that QEMU does not have as its own memory are left out. */
static size_t ask_hvas(struct looker *looker, struct vmm_slot *slots, size_t count)
{
	size_t known = 0;

	for (size_t i = 0; i < count; i++)
		if (ask_hva(looker, &slots[i]))
			slots[known++] = slots[i];
	return known;
}

/* Without it the memory is looked for in the process's mappings. */
static void ask_slots(struct looker *looker)
{
	struct vmm_slot slots[VMM_SLOTS_MAX];
	json_t *text = NULL;
	size_t count = 0;

	looker->next_ask_slots = now() + SLOTS_INTERVAL;
	if (!monitor_human(looker->monitor, "info mtree -f", &text)) {
		count = ask_hvas(looker, slots,
				 qmp_parse_memory(json_string_value(text), slots, VMM_SLOTS_MAX));
		json_decref(text);
	}
	log_debug("QEMU tells %zu ranges of the guest's memory", count);
	if (!count)
		return;
	pthread_mutex_lock(&looker->lock);
	memcpy(looker->slots, slots, count * sizeof(slots[0]));
	looker->slot_count = count;
	pthread_mutex_unlock(&looker->lock);
}

/* RIP of a vCPU that runs can be trusted from QEMU 7.2 on; KVM's are exact with any. */
static int check_version(struct looker *looker)
{
	const json_t *version;
	json_t *result = NULL;
	json_int_t major, minor;
	int error = monitor_execute(looker->monitor, "query-version", NULL, &result);

	if (error)
		return error;
	version = json_object_get(result, "qemu");
	major = json_integer_value(json_object_get(version, "major"));
	minor = json_integer_value(json_object_get(version, "minor"));
	json_decref(result);
	if (!looker->process.monitored || major > 7 || (major == 7 && minor >= 2))
		return 0;
	return error_set(
		-ENOTSUP,
		"QEMU %lld.%lld does not keep the program counter while it emulates, so where the "
		"guest is can not be asked for; from 7.2 on it can",
		(long long)major, (long long)minor);
}

static int open_monitor(struct looker *looker)
{
	const struct monitor_address address = { .socket = looker->socket,
						 .domain = looker->domain,
						 .uri = looker->uri };
	int error = monitor_open(&looker->monitor, &address, &looker->process, looker->stop_fd);

	if (!error)
		error = check_version(looker);
	if (!error)
		error = ask_vcpus(looker);
	if (!error)
		ask_slots(looker);
	return error;
}

/* The thread. */

static bool is_stopped(struct looker *looker)
{
	bool stop;

	pthread_mutex_lock(&looker->lock);
	stop = looker->stop;
	pthread_mutex_unlock(&looker->lock);
	return stop;
}

static void set_state(struct looker *looker, int error)
{
	pthread_mutex_lock(&looker->lock);
	looker->state = error ? LOOKER_FAILED : LOOKER_WORKS;
	looker->error = error;
	if (error)
		snprintf(looker->error_text, sizeof(looker->error_text), "%s", error_message());
	pthread_cond_broadcast(&looker->changed);
	pthread_mutex_unlock(&looker->lock);
}

static void count_missed(struct looker *looker)
{
	pthread_mutex_lock(&looker->lock);
	looks_miss(&looker->looks, looker->interval);
	pthread_mutex_unlock(&looker->lock);
}

static void lose_monitor(struct looker *looker)
{
	if (is_stopped(looker))
		return;
	if (!looker->complained && !vmm_process_ended(&looker->process))
		log_warning("%s; trying again until the VM ends", error_message());
	looker->complained = true;
	monitor_close(looker->monitor);
	looker->monitor = NULL;
	looker->next_try = now() + TRY_INTERVAL;
}

static void try_again(struct looker *looker)
{
	if (open_monitor(looker)) {
		lose_monitor(looker);
		return;
	}
	count_missed(looker);
	log_info("QEMU's monitor answers again");
	looker->complained = false;
}

static int do_what_is_due(struct looker *looker)
{
	uint64_t time = now();
	int error = time >= looker->next_ask ? ask_vcpus(looker) : 0;

	if (!error && time >= looker->next_ask_slots)
		ask_slots(looker);
	return !error && time >= looker->next_look ? look(looker) : error;
}

static void turn(struct looker *looker)
{
	if (!looker->monitor) {
		if (now() >= looker->next_try)
			try_again(looker);
	} else if (do_what_is_due(looker)) {
		lose_monitor(looker);
	}
}

static void wait_for_turn(const struct looker *looker)
{
	struct pollfd stop = { .fd = looker->stop_fd, .events = POLLIN };
	uint64_t due = looker->monitor ? looker->next_look : looker->next_try, time = now();
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

static void free_looker(struct looker *looker)
{
	looks_free(&looker->looks);
	monitor_close(looker->monitor);
	close_fd(looker->main_fd);
	close_fd(looker->stop_fd);
	close_fd(looker->process.pid_fd);
	close_fd(looker->process.directory);
	pthread_mutex_destroy(&looker->lock);
	pthread_cond_destroy(&looker->changed);
	free(looker->socket);
	free(looker->domain);
	free(looker->uri);
	free(looker);
}

static void end_thread(struct looker *looker)
{
	bool abandoned;

	pthread_mutex_lock(&looker->lock);
	looker->ended = true;
	abandoned = looker->abandoned;
	pthread_cond_broadcast(&looker->changed);
	pthread_mutex_unlock(&looker->lock);
	if (abandoned)
		free_looker(looker);
}

/* It is to be connected to again by what is left. */
static int give_up_rights(const struct looker *looker)
{
	const struct monitor_address address = { .socket = looker->socket };
	char path[MONITOR_SOCKET_PATH];
	const struct rights_file socket = { .path = path, .mode = W_OK };
	int error = looker->domain ? 0 : monitor_socket(&address, &looker->process, path);

	return error ? error : rights_keep(&socket, !looker->domain, false);
}

static void *run(void *context)
{
	struct looker *looker = context;
	sigset_t all;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	pthread_setname_np(pthread_self(), "monitor");
	error = open_monitor(looker);
	if (!error)
		error = give_up_rights(looker);
	set_state(looker, error);
	while (!error && !is_stopped(looker)) {
		turn(looker);
		wait_for_turn(looker);
	}
	end_thread(looker);
	return NULL;
}

/* What its owner does. */

static bool copy_text(char **copy, const char *text)
{
	*copy = text ? strdup(text) : NULL;
	return !text || *copy;
}

static int fill(struct looker *looker, const struct monitor_address *address,
		const struct vmm_process *process)
{
	looker->process = *process;
	looker->process.pid_fd = fcntl(process->pid_fd, F_DUPFD_CLOEXEC, 0);
	looker->process.directory = fcntl(process->directory, F_DUPFD_CLOEXEC, 0);
	looker->main_fd = openat(process->directory, "schedstat", O_RDONLY | O_CLOEXEC);
	looker->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (looker->process.pid_fd < 0 || looker->process.directory < 0 || looker->stop_fd < 0)
		return error_set(-errno, "can not make descriptors: %s", strerror(errno));
	if (!copy_text(&looker->socket, address->socket) ||
	    !copy_text(&looker->domain, address->domain) || !copy_text(&looker->uri, address->uri))
		return error_set(-ENOMEM, "no memory for QEMU's monitor");
	return 0;
}

static int start_thread(struct looker *looker)
{
	pthread_attr_t detached;
	pthread_t thread;
	int error;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	looker->ended = false; /* the thread may say at once that it has */
	error = -pthread_create(&thread, &detached, run, looker);
	pthread_attr_destroy(&detached);
	if (error)
		looker->ended = true;
	return error ? error_set(error, "can not start the thread of QEMU's monitor: %s",
				 strerror(-error))
		     : 0;
}

/* Until the thread has done what DONE asks for, for SECONDS at most; with the lock. */
static void wait_until(struct looker *looker, bool (*done)(const struct looker *looker),
		       time_t seconds)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds;
	while (!done(looker) &&
	       !pthread_cond_clockwait(&looker->changed, &looker->lock, CLOCK_MONOTONIC, &end))
		;
}

static bool has_opened(const struct looker *looker)
{
	return looker->state != LOOKER_OPENS;
}

static bool has_ended(const struct looker *looker)
{
	return looker->ended;
}

static int wait_for_vcpus(struct looker *looker)
{
	int error;

	pthread_mutex_lock(&looker->lock);
	wait_until(looker, has_opened, OPEN_TIME);
	if (looker->state == LOOKER_OPENS)
		error = error_set(-ETIMEDOUT, "the monitor of process %d (%s) does not answer",
				  looker->process.pid, looker->process.name);
	else
		error = looker->error ? error_set(looker->error, "%s", looker->error_text) : 0;
	pthread_mutex_unlock(&looker->lock);
	return error;
}

int looker_start(struct looker **result, const struct monitor_address *address,
		 const struct vmm_process *process, unsigned int frequency)
{
	struct looker *looker = calloc(1, sizeof(*looker));
	int error;

	if (!looker)
		return error_set(-ENOMEM, "no memory for QEMU's monitor");
	assert(frequency && frequency <= LOOKER_FREQUENCY_MAX);
	looker->interval = NS_PER_S / frequency;
	looker->ended = true;
	pthread_mutex_init(&looker->lock, NULL);
	pthread_cond_init(&looker->changed, NULL);
	error = fill(looker, address, process);
	if (!error)
		error = start_thread(looker);
	if (!error)
		error = wait_for_vcpus(looker);
	if (error)
		looker_stop(looker);
	else
		*result = looker;
	return error;
}

size_t looker_vcpus(struct looker *looker, struct qmp_vcpu *vcpus)
{
	size_t count;

	pthread_mutex_lock(&looker->lock);
	count = looker->vcpu_count;
	memcpy(vcpus, looker->vcpus, count * sizeof(vcpus[0]));
	pthread_mutex_unlock(&looker->lock);
	return count;
}

size_t looker_slots(struct looker *looker, struct vmm_slot *slots)
{
	size_t count;

	pthread_mutex_lock(&looker->lock);
	count = looker->slot_count;
	memcpy(slots, looker->slots, count * sizeof(slots[0]));
	pthread_mutex_unlock(&looker->lock);
	return count;
}

int looker_add(struct looker *looker, const struct vmm_vcpu *vcpu)
{
	int error;

	pthread_mutex_lock(&looker->lock);
	error = looks_add(&looker->looks, &looker->process, vcpu);
	pthread_mutex_unlock(&looker->lock);
	return error;
}

void looker_remove(struct looker *looker, unsigned int id)
{
	pthread_mutex_lock(&looker->lock);
	looks_remove(&looker->looks, id);
	pthread_mutex_unlock(&looker->lock);
}

size_t looker_take(struct looker *looker, struct look *looks, size_t max, uint64_t *lost)
{
	size_t count;

	pthread_mutex_lock(&looker->lock);
	count = looks_take(&looker->looks, looks, max, lost);
	pthread_mutex_unlock(&looker->lock);
	return count;
}

void looker_statistics(struct looker *looker, struct looker_statistics *statistics)
{
	pthread_mutex_lock(&looker->lock);
	*statistics = looker->statistics;
	pthread_mutex_unlock(&looker->lock);
}

void looker_stop(struct looker *looker)
{
	const uint64_t one = 1;
	bool ended;

	pthread_mutex_lock(&looker->lock);
	looker->stop = true;
	if (looker->stop_fd >= 0 && write(looker->stop_fd, &one, sizeof(one)) < 0)
		log_debug("the monitor's thread is told that it ends already");
	wait_until(looker, has_ended, CLOSE_TIME);
	ended = looker->ended;
	looker->abandoned = !ended;
	pthread_mutex_unlock(&looker->lock);
	if (ended)
		free_looker(looker);
}
