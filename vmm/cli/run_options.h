/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `kvmscope run`. */
#ifndef KVMSCOPE_CLI_RUN_OPTIONS_H
#define KVMSCOPE_CLI_RUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/boot/kernel_boot.h"
#include "vmm/cli/record_options.h"
#include "vmm/cli/run_triggers.h"
#include "vmm/debug/arbiter.h"
#include "vmm/debug/watch_spec.h"
#include "vmm/machine/machine.h"

#define RUN_DISKS_MAX   5
#define RUN_WATCHES_MAX 16

enum run_console { RUN_CONSOLE_STDIO, RUN_CONSOLE_FILE, RUN_CONSOLE_NONE };

/* Where the guest agent comes from. */
enum run_agent_source { RUN_AGENT_NONE, RUN_AGENT_INITRD, RUN_AGENT_GUEST };

/* How the guest's performance counters are provided: see run_pmu.h. */
enum run_pmu { RUN_PMU_AUTO, RUN_PMU_KERNEL, RUN_PMU_EMULATED, RUN_PMU_OFF };

/* How the guest is sampled: see run_bpf.h. */
enum run_sampler { RUN_SAMPLER_AUTO, RUN_SAMPLER_KICK, RUN_SAMPLER_BPF };

enum run_clock { RUN_CLOCK_CPU, RUN_CLOCK_WALL };

struct run_options {
	struct boot_options boot;
	unsigned int cpus;
	enum run_console console;
	const char *console_path;
	uint64_t memory_size;
	struct machine_disk disks[RUN_DISKS_MAX];
	size_t disk_count;
	bool nested; /* the guest may run guests of its own */
	bool reboot; /* a reset starts the guest again instead of ending the run */
	enum run_pmu pmu;
	enum run_agent_source agent;
	const char *agent_socket;
	uint64_t agent_memory; /* bytes that the agent can make the host keep, and of its symbols in
				* the build-id cache */
	char *module_text;     /* owned: read from a file; boot.module_text may point to it */

	bool profile;
	struct record_options record;
	enum run_clock clock;
	enum run_sampler sampler;
	unsigned int outside;  /* as in attach_options */
	uint64_t stack_time;   /* ns that unwinding a call chain may take; 0: no limit */
	const char *symfs;     /* directory with the guest's files; NULL */
	const char *from_line; /* sampling starts with the first console line that contains it;
				* NULL: at once */
	enum breakpoint_priority breakpoint_priority; /* between watches and the guest */
	struct watch_spec watches[RUN_WATCHES_MAX];
	size_t watch_count;
	uint64_t ring_size; /* bytes of each vCPU's ring */

	bool flight;             /* samples stay in memory until a trigger fires */
	uint64_t flight_time;    /* ns of samples that are kept; 0: what flight_size holds */
	uint64_t flight_size;    /* bytes of all rings; 0: what flight_time needs */
	uint64_t flight_after;   /* ns of samples after a trigger */
	unsigned int flight_max; /* files that the guest can cause */
	struct trigger_options triggers; /* besides those that are always active */

	bool stat;        /* measure the wall time and the exits: see run_exits.h */
	bool sandbox;     /* confine the threads: see confine.h */
	const char *user; /* whose rights to take, as root; NULL */

	bool control;             /* listen for kvmscope ctl */
	const char *control_path; /* at this socket; NULL: at one in the runtime directory */
	const char *name;         /* of that socket; NULL: the pid */

	unsigned int timeout;  /* s until the guest is ended as failed; 0: never */
	unsigned int duration; /* s until the guest is ended; 0: never */
};

/*
 * Fills OPTIONS from the command line. --help and errors in it end the program. Strings point into
 * ARGV. Returns 0, or a negative errno with its message for a file that cannot be read.
 */
int run_options_parse(struct run_options *options, int argc, char **argv);
void run_options_free(struct run_options *options);

#endif
