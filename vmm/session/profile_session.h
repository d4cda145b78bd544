/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One profile from start to end, for kvmscope run, kvmscope attach and kvmscoped: the collector
 * that turns the samples of a source into a recording, and the guest agent, if there is one. The
 * caller opens the source and provides the event loop:
 *
 *	session_open() -> session_start() -> session_turn() whenever session_fd() is readable, until
 *	SESSION_ENDED or as long as the caller likes -> session_stop() -> session_close()
 *
 * A process can have many sessions. Each is used by one thread, unless a function says otherwise,
 * and has threads of its own, so a VM that is slow to read does not delay the others.
 */
#ifndef KVMSCOPE_SESSION_PROFILE_SESSION_H
#define KVMSCOPE_SESSION_PROFILE_SESSION_H

#include <stdbool.h>

#include "vmm/record/collector.h"
#include "vmm/session/session_agent.h"

struct host_images;
struct session;

/* What samples the guest. All functions get the source's context. */
struct session_source_ops {
	/* The rings of samples; valid until session_close(). */
	struct ring *const *(*rings)(void *context, size_t *count);
	/* Guest memory; readable by any thread until session_close(). */
	const struct guest_view *(*view)(void *context);
	/* Sets what the source determines in the recording's header: vcpus, vmm_pid, frequency, ...
	 */
	void (*describe)(void *context, struct perf_data_options *output);

	/* The session's thread. NULL: sampling starts with the vCPUs and needs no start. */
	int (*start)(void *context);
	/* True while sampling should wait because the kernel is not known yet. With start. */
	bool (*awaits_kernel)(void *context);
	/* Readable once sampling has ended by itself. With start. */
	int (*end_fd)(void *context);
	/* Stops sampling. Returns why it ended early, with the message, or 0. */
	int (*stop)(void *context);

	/* The collector's thread; as in collector_options. The last three may be NULL. */
	bool (*registers)(void *context, struct guest_registers *registers);
	void (*publish)(void *context, const struct guest_kernel *kernel);
	void (*settle)(void *context);
	void (*lost)(void *context);
	void (*modules)(void *context, const struct guest_module *list, size_t count);
	bool (*count)(void *context, unsigned int watch, unsigned int vcpu,
		      struct perf_data_count *count);
	void (*turn)(void *context);
	void (*times)(void *context, struct perf_data_times *times); /* NULL: not measured */
};

struct session_source {
	const struct session_source_ops *ops;
	void *context;
	uint64_t delay; /* ns a sample can take to reach its ring, as in collector_options */
};

struct session_options {
	struct session_source source;
	const char *output;                  /* perf.data file, "-" for standard output */
	const struct collector_files *files; /* a sequence of files instead of OUTPUT; NULL */
	enum perspective perspective;
	bool callchains;                     /* where the source provides them */
	unsigned int compression;            /* zstd level; 0: none */
	const char *kallsyms, *vmlinux;      /* kernel symbols from these files; NULL */
	const char *btf, *btf_hint;          /* as in collector_options */
	const char *symfs;                   /* as in collector_options */
	struct image_parser *parser;         /* as in collector_options; outlives the session */
	const char *command_line;            /* for the recording's header */
	const struct flight_options *flight; /* NULL: all samples are written as they arrive */
	/* Events of the source after its clock, as in perf_data_options; NULL: what it describes */
	const struct perf_data_watches *events;
	bool host_stacks;                  /* the source has the host's call chains, */
	const struct host_images *host;    /* for which these outlive the session; NULL */
	const struct perf_data_room *room; /* for OUTPUT, as in perf_data_options; NULL */
	bool buildid_cache;
	const struct build_id_cache_location *cache; /* as collector_options.names; NULL */
	/* Its fd is closed by the session; NULL: no agent. */
	const struct session_agent_options *agent;
	size_t guest_memory; /* bytes the guest can make the host keep; 0: no limit */
};

/* OPTIONS and the agent's options are copied; what else they point to must outlive the session.
 * -ENOMEM, the errors of epoll and timerfd. */
int session_open(struct session **session, const struct session_options *options);

/* Opens the recording and starts the search for the kernel. The errors of collector_start(). */
int session_start(struct session *session);

/* For poll(): readable when session_turn() has work to do. */
int session_fd(const struct session *session);

enum session_state {
	/* Sampling has not started: it waits up to 20 s for the guest's kernel to be found and up
	 * to 1 s for the agent's first report. */
	SESSION_SEARCHING,
	SESSION_SAMPLING,
	SESSION_ENDED, /* the VM ended or can no longer be sampled: session_stop() says which */
};

/* Does the pending work without waiting. Returns the state, or an error of starting the source. */
int session_turn(struct session *session);

/* The guest is about to be reset, and its memory is unchanged: see collector_reset(). */
void session_reset(struct session *session);

/* State of the guest agent; false without one. Any thread, from start to close. */
bool session_agent_statistics(const struct session *session, struct agent_statistics *statistics);

/* That state in one word: "open": it reports; "silent": nothing answers; "busy": another program is
 * connected to its channel; "unreachable": the channel cannot be connected to. */
const char *session_agent_word(const struct agent_statistics *statistics);

/* Logs which symbols of user-space images the agent could not provide. After session_stop(). */
void session_report_symbols(const struct session *session);

/* Counts of the recording so far, the final ones after session_stop(). Any thread until
 * session_close(). */
void session_statistics(struct session *session, struct collector_statistics *statistics);

/*
 * Stops sampling and completes the recording. STATISTICS (may be NULL) gets the final counts.
 * Returns 0, or why sampling or writing ended early, with the message; what was sampled is in the
 * recording in either case.
 */
int session_stop(struct session *session, struct collector_statistics *statistics);

/* Stops first if that was not done. NULL is a no-op. */
void session_close(struct session *session);

#endif
