/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile of somebody else's VM from its beginning to its end: an attachment
 * (vmm/attach), the collector that makes a recording of its samples, and what
 * has to come first, that the guest's kernel is looked for. One process may have
 * many, each driven by a descriptor that any event loop can wait for:
 *
 *	session_open() -> session_start() -> session_turn() whenever session_fd() can be read,
 *	until SESSION_ENDED or as long as is wanted -> session_stop() -> session_close()
 *
 * All on one thread, but what says otherwise. Each session has threads of its own, that a VM which
 *is slow to look at, or means to be, holds up no other one.
 */
#ifndef KVMSCOPE_SESSION_SESSION_H
#define KVMSCOPE_SESSION_SESSION_H

#include <stdbool.h>

#include "vmm/agent/agent_host.h"
#include "vmm/attach/attachment.h"
#include "vmm/record/collector.h"

/* ns that a sample may wait in a backend: far more than its looks are apart, as others want the
 * CPUs, too. */
#define SESSION_DELAY 500000000ull

struct session;

struct session_options {
	struct attach_options attach;
	const char *output; /* perf.data file, "-" for standard output */
	const struct collector_files
		*files; /* many files in its place, as in collector_options; NULL */
	enum perspective perspective;
	unsigned int compression;            /* zstd level; 0: none */
	const char *kallsyms, *vmlinux;      /* names from these files; NULL */
	const char *btf;                     /* where the guest's memory has none; NULL */
	const char *btf_hint;                /* as in collector_options */
	const char *command_line;            /* for the recording's header */
	const struct flight_options *flight; /* NULL: all samples are written as they come */
	const struct perf_data_room *room;   /* is kept for OUTPUT, as in perf_data_options; NULL */
	bool buildid_cache;
	const struct build_id_cache_location *names; /* as in collector_options; NULL */
	bool agent;               /* the guest's is talked with, if the VM has a channel for it */
	const char *agent_socket; /* there, and not where the VM's command line says; NULL */
};

/* Finds the VM and chooses the backend: the errors of attach_open(). OPTIONS are copied, their
 * strings are not: they outlive the session. */
int session_open(struct session **session, const struct session_options *options);

/* What it is attached to, and how. */
struct attach *session_attach(const struct session *session);

/* Opens the recording and begins to look for the kernel: the errors of collector_start(). */
int session_start(struct session *session);

/* Can be polled: readable when session_turn() has something to do. */
int session_fd(const struct session *session);

enum session_state {
	/* Nothing is sampled before the guest's kernel is known, or 20 s have passed; or its agent
	 * has told, or 1 s has. */
	SESSION_SEARCHING,
	SESSION_SAMPLING,
	SESSION_ENDED, /* the VM has, or it can not be sampled any more: session_stop() tells */
};

/* Does what is due, without waiting; the state, or an error of attach_start(). */
int session_turn(struct session *session);

/* What is known of the guest's agent; false: the VM has no channel for one. Any thread, from start
 * to close.
 */
bool session_agent_told(const struct session *session, struct agent_statistics *statistics);

/*
 * That in one word: "open", it tells; "silent", nobody answers; "busy", somebody else is connected
 * to the channel; "unreachable", the channel can not be connected to.
 */
const char *session_agent_word(const struct agent_statistics *statistics);

/* Of the recording so far. Any thread, between start and stop. */
void session_statistics(const struct session *session, struct collector_statistics *statistics);

/*
 * Ends sampling and completes the recording. STATISTICS (may be NULL) gets the final counts. 0, or
 * why sampling or writing ended before that, with the message; what was sampled is there in any
 * case.
 */
int session_stop(struct session *session, struct collector_statistics *statistics);

/* Also without session_stop(). Works on NULL. */
void session_close(struct session *session);

#endif
