/* SPDX-License-Identifier: Apache-2.0 */
/* What benches of attaching run beside each other: kvmscope attach by one of its ways, and perf.
 * One thread.
 */
#ifndef KVMSCOPE_TESTS_BENCH_ATTACH_TOOLS_H
#define KVMSCOPE_TESTS_BENCH_ATTACH_TOOLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PERFS "build/bench/attach.perf.data" /* what perf records */

/* A way of kvmscope attach, what it records, what it says, and how long it may stop a thread (us;
 * NULL: for as long as it does by default). */
struct way {
	const char *name, *output, *messages, *stop_limit;
};

/* FIFOs for perf, once for all; false: they can not be made, as errno says. */
bool tools_open(void);
/* Removes them, and what perf left. */
void tools_close(void);

/* kvmscope attach on VM, a process, by WAY; 0: it can not be started. */
pid_t tools_start_ours(pid_t vm, const struct way *way, unsigned int frequency);
/* Until it has looked for a kernel and does nothing but sample; false: it does not work, as it
 * says. */
bool tools_wait_for_ours(pid_t tool, const struct way *way);

/* perf kvm --guest record -e cpu-clock on VM; 0: it can not be started. Begins when it is told to,
 * and says so: until then it looks for much else. */
pid_t tools_start_perf(pid_t vm, unsigned int frequency);
bool tools_enable_perf(void);

/* Interrupts it, and waits; 0 is a no-op. */
void tools_end(pid_t tool);

/* ns that it has used of processors. */
uint64_t tools_cpu_time(pid_t tool);

/* The number behind NAME in what WAY said; 0: there is none. */
double tools_said_number(const struct way *way, const char *name);
/* The last of what it said, without what JSON would need escapes for. */
void tools_said_last(const struct way *way, char line[200]);

#endif
