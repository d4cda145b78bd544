/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tools that the attach benches compare: kvmscope attach with one backend, and perf. One
 * thread.
 */
#ifndef KVMSCOPE_TESTS_BENCH_ATTACH_TOOLS_H
#define KVMSCOPE_TESTS_BENCH_ATTACH_TOOLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * The recording of perf, set by tools_open(). The files of perf are named after the bench, because
 * the benches run side by side.
 */
extern char tools_perf_data[];

/*
 * A backend of kvmscope attach, its recording, its output, and the limit for stopping a thread (us;
 * NULL: the default).
 */
struct way {
	const char *name, *output, *messages, *stop_limit;
};

/* Creates the FIFOs for perf, once for all runs. False: not possible, see errno. */
bool tools_open(void);
/* Removes the FIFOs and the files of perf. */
void tools_close(void);

/* Starts kvmscope attach on the process VM with WAY; 0: it cannot be started. */
pid_t tools_start_kvmscope(pid_t vm, const struct way *way, unsigned int frequency);
/*
 * Waits until kvmscope has searched for a kernel and only samples from then on. False: it failed;
 * its output has the reason.
 */
bool tools_wait_for_kvmscope(pid_t tool, const struct way *way);

/*
 * Starts perf kvm --guest record -e cpu-clock on VM; 0: it cannot be started. perf initializes
 * itself first, waits for tools_enable_perf() and confirms it.
 */
pid_t tools_start_perf(pid_t vm, unsigned int frequency);
bool tools_enable_perf(void);

/* Interrupts the tool and waits for it; 0 is a no-op. If it does not exit, the bench fails. */
void tools_end(pid_t tool);

/* CPU time of the tool so far, ns. */
uint64_t tools_cpu_time(pid_t tool);

/* The number after NAME in the output of WAY; 0: none. */
double tools_reported_number(const struct way *way, const char *name);
/* The last line of the output of WAY, without characters that JSON would have to escape. */
void tools_last_message(const struct way *way, char line[200]);

#endif
