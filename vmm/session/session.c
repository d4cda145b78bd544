// SPDX-License-Identifier: Apache-2.0
#include "vmm/session/session.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/agent_channel.h"
#include "vmm/session/session_agent.h"

/* So long sampling waits for the guest's kernel to be found; and between two looks whether it was.
 */
#define KERNEL_WAIT     (20 * NS_PER_S)
#define KERNEL_INTERVAL (20 * NS_PER_MS)
/* So long for its agent to tell what runs already: who answers does it in less, and many have none.
 */
#define AGENT_WAIT NS_PER_S

struct session {
	struct session_options options;
	struct attach *attach;
	struct collector *collector;       /* NULL: not started, or stopped */
	struct guest_account account;      /* of what the guest's agent tells */
	struct session_agent *agent;       /* NULL: there is no channel for it */
	const struct guest_kernel *kernel; /* that is published; the collector's thread */
	enum session_state state;
	int events;     /* epoll: the process's end, the attachment's end, the timer */
	int timer;      /* ticks while the kernel is looked for */
	uint64_t begun; /* ns */
};

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static int watch(const struct session *session, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(session->events, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int make_events(struct session *session)
{
	int error = 0;

	session->events = epoll_create1(EPOLL_CLOEXEC);
	session->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (session->events < 0 || session->timer < 0)
		error = -errno;
	if (!error)
		error = watch(session, session->timer);
	if (!error)
		error = watch(session, attach_end_fd(session->attach));
	return error ? error_set(error, "can not wait for the end of a VM: %s", strerror(-error))
		     : 0;
}

int session_open(struct session **result, const struct session_options *options)
{
	struct session *session = calloc(1, sizeof(*session));
	int error;

	if (!session)
		return error_set(-ENOMEM, "no memory to attach to process %d", options->attach.pid);
	session->options = *options;
	guest_account_init(&session->account, GUEST_ACCOUNT_DEFAULT);
	session->events = session->timer = -1;
	error = attach_open(&session->attach, &options->attach);
	if (!error)
		error = make_events(session);
	if (error)
		session_close(session);
	else
		*result = session;
	return error;
}

struct attach *session_attach(const struct session *session)
{
	return session->attach;
}

static bool registers(void *context, struct guest_registers *found)
{
	return attach_registers(((struct session *)context)->attach, found);
}

static void publish(void *context, const struct guest_kernel *kernel)
{
	struct session *session = context;

	session->kernel = kernel;
	attach_set_kernel(session->attach, kernel);
}

static void settle(void *context)
{
	attach_wait_for_users(((struct session *)context)->attach);
}

static void lose(void *context)
{
	struct session *session = context;

	session->kernel = NULL;
	attach_drop_kernel(session->attach);
}

static void see_mapping(void *context, const struct sideband_mmap *mapping)
{
	session_agent_see(((struct session *)context)->agent, mapping);
}

static void turn(void *context)
{
	struct session *session = context;

	session_agent_turn(session->agent, session->kernel, attach_view(session->attach));
}

static struct reported_kernel *hear_of_kernel(void *context, uint64_t modules_hash)
{
	return session_agent_kernel(((struct session *)context)->agent, modules_hash);
}

static int hear_of_tasks(void *context, bool ask, struct reported_tasks *told)
{
	return session_agent_tasks(((struct session *)context)->agent, ask, told);
}

static struct perf_data_options output_options(const struct session *session, size_t vcpus)
{
	const struct session_options *options = &session->options;
	const struct attach *attach = session->attach;

	return (struct perf_data_options){
		.path = options->output,
		.room = options->room,
		.perspective = options->perspective,
		.cycles = attach_event(attach) == ATTACH_CYCLES,
		.host_samples = true,
		.frequency = attach_frequency(attach),
		.callchains = options->attach.callchains && attach_backend(attach)->has_callchains,
		.compression = options->compression,
		.vcpus = (unsigned int)vcpus,
		.cpus = (unsigned int)attach_process(attach)->vcpu_count,
		.vmm_pid = attach_process(attach)->pid,
		.command_line = options->command_line,
		.hostname = "",
		.release = "",
		.arch = "x86_64",
		.cpu_description = "",
	};
}

static int start_collector(struct session *session)
{
	const struct session_options *options = &session->options;
	size_t count;
	struct ring *const *rings = attach_rings(session->attach, &count);
	const struct collector_options collector = {
		.rings = rings,
		.ring_count = count,
		.account = &session->account,
		.view = attach_view(session->attach),
		.registers = registers,
		.publish = publish,
		.settle = settle,
		.lost = lose,
		.mapped = session->agent ? see_mapping : NULL,
		.turn = session->agent ? turn : NULL,
		.told = session->agent ? hear_of_kernel : NULL,
		.tasks = session->agent ? hear_of_tasks : NULL,
		.context = session,
		.sideband_rings = session->agent ? session_agent_rings(session->agent) : NULL,
		.sideband_ring_count = session->agent ? SESSION_AGENT_RINGS : 0,
		.delay = SESSION_DELAY,
		.output = output_options(session, count),
		.files = options->files,
		.flight = options->flight,
		.kallsyms = options->kallsyms,
		.vmlinux = options->vmlinux,
		.btf = options->btf,
		.btf_hint = options->btf_hint,
		.buildid_cache = options->buildid_cache,
		.names = options->names,
	};

	return collector_start(&session->collector, &collector);
}

/* From the next moment on, again and again; 0: no longer. */
static void tick(const struct session *session, uint64_t interval)
{
	const struct itimerspec times = {
		.it_value = { .tv_nsec = interval ? 1 : 0 },
		.it_interval = { .tv_nsec = (long)interval },
	};

	timerfd_settime(session->timer, 0, &times, NULL);
}

static int make_agent(struct session *session)
{
	const struct session_options *options = &session->options;
	const struct session_agent_options agent = {
		.process = attach_process(session->attach),
		.path = options->agent_socket,
		.names = options->buildid_cache,
		.place = options->names,
		.account = &session->account,
	};
	int error;

	if (!options->agent || (!options->agent_socket && !agent_channel_exists(agent.process)))
		return 0;
	error = session_agent_create(&session->agent, &agent);
	return error ? error : session_agent_start(session->agent);
}

int session_start(struct session *session)
{
	int error = make_agent(session);

	if (!error)
		error = start_collector(session);
	if (error)
		return error;
	session->state = SESSION_SEARCHING;
	session->begun = now();
	tick(session, KERNEL_INTERVAL);
	return 0;
}

int session_fd(const struct session *session)
{
	return session->events;
}

static bool waits_for_kernel(const struct session *session)
{
	return attach_awaits_kernel(session->attach) && now() - session->begun < KERNEL_WAIT &&
	       !vmm_process_ended(attach_process(session->attach));
}

static bool waits_for_agent(const struct session *session)
{
	struct agent_statistics agent;

	if (!session->agent || now() - session->begun >= AGENT_WAIT)
		return false;
	session_agent_statistics(session->agent, &agent);
	return agent.unconnected == 0 && !agent.snapshot_done;
}

static int sample(struct session *session)
{
	log_debug("waited %llu ms for the guest's kernel and agent",
		  (unsigned long long)((now() - session->begun) / NS_PER_MS));
	tick(session, 0);
	session->state = SESSION_SAMPLING;
	return attach_start(session->attach);
}

static bool has_ended(const struct session *session)
{
	uint64_t count;

	return read(attach_end_fd(session->attach), &count, sizeof(count)) == sizeof(count);
}

int session_turn(struct session *session)
{
	uint64_t ticks;
	int error = 0;

	assert(session->collector);
	if (read(session->timer, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
		return error_set(-errno, "can not read a timer: %s", strerror(errno));
	if (session->state == SESSION_SEARCHING && !waits_for_kernel(session) &&
	    !waits_for_agent(session))
		error = sample(session);
	if (!error && session->state == SESSION_SAMPLING && has_ended(session))
		session->state = SESSION_ENDED;
	return error ? error : (int)session->state;
}

bool session_agent_told(const struct session *session, struct agent_statistics *statistics)
{
	if (session->agent)
		session_agent_statistics(session->agent, statistics);
	return session->agent;
}

const char *session_agent_word(const struct agent_statistics *statistics)
{
	if (statistics->open)
		return "open";
	if (!statistics->unconnected)
		return "silent";
	return statistics->unconnected == -EBUSY ? "busy" : "unreachable";
}

void session_statistics(const struct session *session, struct collector_statistics *statistics)
{
	collector_statistics(session->collector, statistics);
}

int session_stop(struct session *session, struct collector_statistics *statistics)
{
	char message[ERROR_MESSAGE_SIZE] = "";
	int error, collected;

	attach_stop(session->attach);
	error = attach_error(session->attach);
	if (error)
		snprintf(message, sizeof(message), "%s", error_message());
	if (session->agent)
		session_agent_end(session->agent);
	collected = collector_stop(session->collector, statistics);
	session->collector = NULL;
	return error ? error_set(error, "%s", message) : collected;
}

void session_close(struct session *session)
{
	if (!session)
		return;
	if (session->collector)
		session_stop(session, NULL);
	session_agent_destroy(session->agent);
	attach_close(session->attach);
	if (session->events >= 0)
		close(session->events);
	if (session->timer >= 0)
		close(session->timer);
	free(session);
}
