/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a kvmscoped of the same build, with its directories below DAEMON.directory: run, recordings,
 * and libvirt unless another one is set. Domains may be faked: a VM of our own VMM plus the files
 * that libvirt would write for it. Main thread.
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
	char libvirt[128];  /* the directory in which it searches for domains */
	char uri[128];      /* libvirt's URI */
	pid_t pid;
};

/*
 * Creates the directories, and a kvmscope.conf of CONF and the tests' defaults: no metrics, small
 * files.
 */
void daemon_run_prepare(struct daemon_run *daemon, const char *conf);

/* Rewrites kvmscope.conf with CONF. */
void daemon_run_write_conf(const struct daemon_run *daemon, const char *conf);

/* Starts it without waiting. */
void daemon_run_launch(struct daemon_run *daemon);

/*
 * Starts it and waits until it answers. On failure the check fails with its log, and false is
 * returned.
 */
bool daemon_run_start(struct daemon_run *daemon);

/* Sends SIGNAL and waits. Returns its exit status, or 128 + the signal that ended it. */
int daemon_run_stop(struct daemon_run *daemon, int signal);

/* Stops it if it runs, and removes the directory. */
void daemon_run_end(struct daemon_run *daemon);

/*
 * Sends a command and returns the result, which the caller frees; NULL on error, with the error
 * message set. Takes ownership of ARGUMENTS, which may be NULL.
 */
json_t *daemon_run_ask(const struct daemon_run *daemon, const char *command, json_t *arguments);

/* Waits until the domain has at least SAMPLES samples; the check fails after a minute. */
bool daemon_run_wait_for_samples(const struct daemon_run *daemon, const char *domain, long samples);

/* Waits until COUNT domains are profiled; the check fails after a minute. */
bool daemon_run_wait_for_domains(const struct daemon_run *daemon, size_t count);

/* Returns the log so far, which the caller frees. */
char *daemon_run_log(const struct daemon_run *daemon);
/* Waits until the log contains TEXT; the check fails with the log after a minute. */
bool daemon_run_wait_for_log(const struct daemon_run *daemon, const char *text);

/* Starts a VM with libvirt's files of a domain NAME with METADATA. It runs until it is killed. */
void fake_domain_start(struct program *vm, const struct daemon_run *daemon, const char *name,
		       const char *metadata);
/* The same with a process that has no VM, so it cannot be sampled. */
void fake_domain_start_without_vm(struct program *process, const struct daemon_run *daemon,
				  const char *name, const char *metadata);
/* Writes the domain's XML. */
void fake_domain_write(const struct daemon_run *daemon, const char *name, pid_t pid,
		       const char *metadata);
/* Ends the VM and leaves its files, as a crash does. Returns true if it was still running. */
bool fake_domain_kill(struct program *vm);

#define FAKE_PROFILE(attributes) "<k:profile xmlns:k='urn:kvmscope:profile' " attributes "/>"

#endif
