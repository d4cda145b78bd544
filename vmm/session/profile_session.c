/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/profile_session.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "vmm/session/host_images.h"

/* How long sampling waits for the guest's kernel to be found, and how often that is checked. */
#define KERNEL_WAIT     (20 * NS_PER_S)
#define KERNEL_INTERVAL (20 * NS_PER_MS)
/* How long sampling waits for the agent's snapshot. An agent answers faster; most guests have none.
 */
#define AGENT_WAIT NS_PER_S

struct session {
	struct session_options options;
	struct session_agent_options agent_options; /* fd -1: consumed */
	struct thread_check thread;
	struct guest_account account;      /* for what the guest reports */
	struct session_agent *agent;       /* NULL: none */
	const struct guest_kernel *kernel; /* the published one; collector's thread */
	enum session_state state;
	int events;                       /* epoll: the source's end, the timer */
	int timer;                        /* ticks while the kernel is searched */
	uint64_t begun;                   /* ns */
	pthread_mutex_t lock;             /* protects the next two */
	struct collector *collector;      /* NULL: not started, or stopped */
	struct collector_statistics last; /* when it was stopped */
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

static int create_events(struct session *session)
{
	const struct session_source *source = &session->options.source;
	int error = 0;

	if (!source->ops->start)
		return 0;
	session->events = epoll_create1(EPOLL_CLOEXEC);
	session->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (session->events < 0 || session->timer < 0)
		error = -errno;
	if (!error)
		error = watch(session, session->timer);
	if (!error)
		error = watch(session, source->ops->end_fd(source->context));
	return error ? error_set(error, "cannot wait for the end of a VM: %s", strerror(-error))
		     : 0;
}

int session_open(struct session **result, const struct session_options *options)
{
	struct session *session = calloc(1, sizeof(*session));
	int error;

	if (!session)
		return error_set(-ENOMEM, "no memory for a session");
	session->options = *options;
	session->agent_options.fd = -1;
	if (options->agent)
		session->agent_options = *options->agent;
	if (options->guest_memory)
		guest_account_init(&session->account, options->guest_memory);
	session->events = session->timer = -1;
	pthread_mutex_init(&session->lock, NULL);
	error = create_events(session);
	if (error)
		session_close(session);
	else
		*result = session;
	return error;
}

/* The collector's callbacks: they go to the source, and some to the agent, too. */

static bool on_registers(void *context, struct guest_registers *registers)
{
	const struct session_source *source = &((struct session *)context)->options.source;

	return source->ops->registers(source->context, registers);
}

static void on_publish(void *context, const struct guest_kernel *kernel)
{
	struct session *session = context;
	const struct session_source *source = &session->options.source;

	session->kernel = kernel;
	source->ops->publish(source->context, kernel);
}

static void on_settle(void *context)
{
	const struct session_source *source = &((struct session *)context)->options.source;

	source->ops->settle(source->context);
}

static void on_lost(void *context)
{
	struct session *session = context;
	const struct session_source *source = &session->options.source;

	session->kernel = NULL;
	source->ops->lost(source->context);
}

static void on_modules(void *context, const struct guest_module *list, size_t count)
{
	const struct session_source *source = &((struct session *)context)->options.source;

	source->ops->modules(source->context, list, count);
}

static bool on_count(void *context, unsigned int watch, unsigned int vcpu,
		     struct perf_data_count *count)
{
	const struct session_source *source = &((struct session *)context)->options.source;

	return source->ops->count(source->context, watch, vcpu, count);
}

static void on_times(void *context, struct perf_data_times *times)
{
	const struct session_source *source = &((struct session *)context)->options.source;

	source->ops->times(source->context, times);
}

static void on_turn(void *context)
{
	struct session *session = context;
	const struct session_source *source = &session->options.source;

	if (source->ops->turn)
		source->ops->turn(source->context);
	if (session->agent)
		session_agent_turn(session->agent, session->kernel,
				   source->ops->view(source->context));
}

static void on_mapping(void *context, const struct sideband_mmap *mapping)
{
	session_agent_add_mapping(((struct session *)context)->agent, mapping);
}

static struct reported_kernel *on_kernel_request(void *context, uint64_t modules_hash)
{
	return session_agent_kernel(((struct session *)context)->agent, modules_hash);
}

static int on_tasks_request(void *context, bool ask, struct reported_tasks *tasks)
{
	return session_agent_tasks(((struct session *)context)->agent, ask, tasks);
}

static struct perf_data_options output_options(const struct session *session)
{
	const struct session_options *options = &session->options;
	struct perf_data_options output = {
		.path = options->output,
		.room = options->room,
		.perspective = options->perspective,
		.compression = options->compression,
		.command_line = options->command_line,
	};

	options->source.ops->describe(options->source.context, &output);
	if (options->events)
		output.watches = options->events;
	output.callchains &= options->callchains;
	output.host_stacks = options->host_stacks;
	if (options->host)
		output.host = host_images_mappings(options->host, &output.host_count);
	return output;
}

static int start_collector(struct session *session)
{
	const struct session_options *options = &session->options;
	const struct session_source_ops *ops = options->source.ops;
	struct collector_options collector = {
		.account = options->guest_memory ? &session->account : NULL,
		.view = ops->view(options->source.context),
		.registers = on_registers,
		.publish = on_publish,
		.settle = on_settle,
		.lost = on_lost,
		.modules = ops->modules ? on_modules : NULL,
		.count = ops->count ? on_count : NULL,
		.times = ops->times ? on_times : NULL,
		.drained = on_turn,
		.context = session,
		.delay = options->source.delay,
		.output = output_options(session),
		.files = options->files,
		.flight = options->flight,
		.kallsyms = options->kallsyms,
		.vmlinux = options->vmlinux,
		.btf = options->btf,
		.btf_hint = options->btf_hint,
		.symfs = options->symfs,
		.parser = options->parser,
		.buildid_cache = options->buildid_cache,
		.names = options->cache,
	};

	collector.rings = ops->rings(options->source.context, &collector.ring_count);
	if (session->agent) {
		collector.sideband_rings =
			session_agent_rings(session->agent, &collector.sideband_ring_count);
		collector.mapped = on_mapping;
		collector.kernel_report = on_kernel_request;
		collector.tasks = on_tasks_request;
	}
	return collector_start(&session->collector, &collector);
}

/* Ticks at once and then every INTERVAL ns; 0 stops the timer. */
static void tick(const struct session *session, uint64_t interval)
{
	const struct itimerspec times = {
		.it_value = { .tv_nsec = interval ? 1 : 0 },
		.it_interval = { .tv_nsec = (long)interval },
	};

	timerfd_settime(session->timer, 0, &times, NULL);
}

static int start_agent(struct session *session)
{
	const struct session_options *options = &session->options;
	int error;

	if (!options->agent)
		return 0;
	error = session_agent_create(&session->agent, &session->agent_options,
				     options->guest_memory ? &session->account : NULL,
				     options->buildid_cache, options->cache);
	session->agent_options.fd = -1;
	return error ? error : session_agent_start(session->agent);
}

int session_start(struct session *session)
{
	int error;

	THREAD_CHECK(&session->thread);
	error = start_agent(session);
	if (!error)
		error = start_collector(session);
	if (error)
		return error;
	session->begun = now();
	session->state = SESSION_SAMPLING;
	if (session->options.source.ops->start) {
		session->state = SESSION_SEARCHING;
		tick(session, KERNEL_INTERVAL);
	}
	return 0;
}

int session_fd(const struct session *session)
{
	return session->events;
}

static bool awaits_kernel(const struct session *session)
{
	const struct session_source *source = &session->options.source;

	return now() - session->begun < KERNEL_WAIT && source->ops->awaits_kernel(source->context);
}

static bool awaits_agent(const struct session *session)
{
	struct agent_statistics agent;

	return now() - session->begun < AGENT_WAIT && session_agent_statistics(session, &agent) &&
	       !agent.unconnected && !agent.snapshot_done;
}

static int start_sampling(struct session *session)
{
	const struct session_source *source = &session->options.source;

	log_debug("waited %llu ms for the guest's kernel and agent",
		  (unsigned long long)((now() - session->begun) / NS_PER_MS));
	tick(session, 0);
	session->state = SESSION_SAMPLING;
	return source->ops->start(source->context);
}

static bool has_ended(const struct session *session)
{
	const struct session_source *source = &session->options.source;
	uint64_t count;

	return read(source->ops->end_fd(source->context), &count, sizeof(count)) == sizeof(count);
}

int session_turn(struct session *session)
{
	uint64_t ticks;
	int error = 0;

	THREAD_CHECK(&session->thread);
	assert(session->collector);
	if (read(session->timer, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
		return error_set(-errno, "cannot read a timer: %s", strerror(errno));
	if (session->state == SESSION_SEARCHING && !awaits_kernel(session) &&
	    !awaits_agent(session))
		error = start_sampling(session);
	if (!error && session->state == SESSION_SAMPLING && has_ended(session))
		session->state = SESSION_ENDED;
	return error ? error : (int)session->state;
}

void session_reset(struct session *session)
{
	THREAD_CHECK(&session->thread);
	collector_reset(session->collector);
}

bool session_agent_statistics(const struct session *session, struct agent_statistics *statistics)
{
	if (session->agent)
		session_agent_count(session->agent, statistics);
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

void session_report_symbols(const struct session *session)
{
	if (session->agent)
		session_agent_report_symbols(session->agent);
}

void session_statistics(struct session *session, struct collector_statistics *statistics)
{
	pthread_mutex_lock(&session->lock);
	if (session->collector)
		collector_statistics(session->collector, statistics);
	else
		*statistics = session->last;
	pthread_mutex_unlock(&session->lock);
}

/* From here on other threads get the counts of this moment until the final ones are known. */
static struct collector *detach_collector(struct session *session)
{
	struct collector *collector = session->collector;

	pthread_mutex_lock(&session->lock);
	collector_statistics(collector, &session->last);
	session->collector = NULL;
	pthread_mutex_unlock(&session->lock);
	return collector;
}

int session_stop(struct session *session, struct collector_statistics *statistics)
{
	const struct session_source *source = &session->options.source;
	char message[ERROR_MESSAGE_SIZE] = "";
	struct collector_statistics last;
	struct collector *collector;
	int error, collected;

	THREAD_CHECK(&session->thread);
	error = source->ops->stop(source->context);
	if (error)
		snprintf(message, sizeof(message), "%s", error_message());
	if (session->agent)
		session_agent_end(session->agent);
	collector = detach_collector(session);
	collected = collector_stop(collector, &last);
	pthread_mutex_lock(&session->lock);
	session->last = last;
	pthread_mutex_unlock(&session->lock);
	if (statistics)
		*statistics = last;
	return error ? error_set(error, "%s", message) : collected;
}

void session_close(struct session *session)
{
	if (!session)
		return;
	if (session->collector)
		session_stop(session, NULL);
	session_agent_destroy(session->agent);
	if (session->agent_options.fd >= 0)
		close(session->agent_options.fd);
	if (session->events >= 0)
		close(session->events);
	if (session->timer >= 0)
		close(session->timer);
	pthread_mutex_destroy(&session->lock);
	free(session);
}
