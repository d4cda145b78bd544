/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kvmscoped of a test's own, the one that was built with these tests: its directories are below
 * DAEMON.directory (run, recordings, and libvirt, unless it is told another one). Domains may be
 * faked: a VM of our own VMM, with the files that libvirt would have of it. Main thread.
 */
#ifndef KVMSCOPE_TESTS_KVM_DAEMON_RUN_H
#define KVMSCOPE_TESTS_KVM_DAEMON_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tests/kvm/program.h"

struct daemon_run {
	char directory[64]; /* absolute; removed by daemon_run_end() */
	char run[128];      /* the run directory */
	char libvirt[128];  /* the directory that it looks for domains in */
	char uri[128];      /* of libvirt */
	pid_t pid;
};

/* Makes the directories, and kvmscope.conf of CONF and what tests want besides: no metrics, small
 * files. */
void daemon_run_prepare(struct daemon_run *daemon, const char *conf);

/* Writes kvmscope.conf anew, with CONF. */
void daemon_run_write_conf(const struct daemon_run *daemon, const char *conf);

/* Starts it. */
void daemon_run_launch(struct daemon_run *daemon);

/* Starts it and waits until it answers; false, and a failed check with its log, if it does not. */
bool daemon_run_start(struct daemon_run *daemon);

/* Sends SIGNAL and waits; its exit status, or 128 + the signal that ended it. */
int daemon_run_stop(struct daemon_run *daemon, int signal);

/* Stops it if it runs, and removes the directory. */
void daemon_run_end(struct daemon_run *daemon);

/* What it answers, to be freed; NULL: an error, its message is set. ARGUMENTS are taken over; NULL:
 * none. */
json_t *daemon_run_ask(const struct daemon_run *daemon, const char *command, json_t *arguments);

/* Waits until the domain is sampled with SAMPLES of it; a failed check after a minute. */
bool daemon_run_wait_for_samples(const struct daemon_run *daemon, const char *domain, long samples);

/* Waits until COUNT domains are profiled; a failed check after a minute. */
bool daemon_run_wait_for_domains(const struct daemon_run *daemon, size_t count);

/* The log so far, to be freed. */
char *daemon_run_log(const struct daemon_run *daemon);
/* Waits until it has TEXT; a failed check with the log after a minute. */
bool daemon_run_wait_for_log(const struct daemon_run *daemon, const char *text);

/* A VM with the files of a domain NAME, whose metadata is METADATA; it runs until it is killed. */
void fake_domain_start(struct program *vm, const struct daemon_run *daemon, const char *name,
		       const char *metadata);
/* Its XML from here on. */
void fake_domain_write(const struct daemon_run *daemon, const char *name, pid_t pid,
		       const char *metadata);
/* Ends it; its files are left there, as by a crash. Does it still run? */
bool fake_domain_kill(struct program *vm);

#define FAKE_PROFILE(attributes) "<k:profile xmlns:k='urn:kvmscope:profile' " attributes "/>"

#endif
