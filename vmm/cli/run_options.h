/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `kvmscope run`. */
#ifndef KVMSCOPE_CLI_RUN_OPTIONS_H
#define KVMSCOPE_CLI_RUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/boot/kernel_boot.h"
#include "vmm/cli/trigger_options.h"
#include "vmm/debug/arbiter.h"
#include "vmm/debug/watch_spec.h"
#include "vmm/machine/machine.h"
#include "vmm/perf_data/perf_data_writer.h"

#define RUN_DISKS_MAX     5
#define RUN_WATCHES_MAX   16
#define RUN_FREQUENCY_MAX 10000u

enum run_console { RUN_CONSOLE_STDIO, RUN_CONSOLE_FILE, RUN_CONSOLE_NONE };

/* Where the guest agent comes from. */
enum run_agent_source { RUN_AGENT_NONE, RUN_AGENT_INITRD, RUN_AGENT_GUEST };

/* What the guest's performance counters are made of: see run_pmu.h. */
enum run_pmu { RUN_PMU_AUTO, RUN_PMU_KERNEL, RUN_PMU_EMULATED, RUN_PMU_OFF };

/* What takes the samples: see run_bpf.h. */
enum run_sampler { RUN_SAMPLER_AUTO, RUN_SAMPLER_KICK, RUN_SAMPLER_BPF };

struct run_options {
	struct boot_options boot;
	unsigned int cpus;
	enum run_console console;
	uint64_t memory_size;
	uint64_t agent_memory; /* bytes that one guest's agent can make the host keep; the same of
				  names on disk */
	struct machine_disk disks[RUN_DISKS_MAX];
	size_t disk_count;
	const char *console_path;
	const char *agent_socket;
	enum run_agent_source agent;
	enum run_pmu pmu;
	char *module_text;  /* owned: read from a file; boot.module_text may point to it */
	char *command_line; /* owned: all words as the user gave them, for the profile */
	bool nested;        /* the guest may run guests of its own */

	bool profile, wall_clock, callchains;
	unsigned int frequency; /* Hz */
	enum run_sampler sampler;
	uint64_t stack_time;   /* ns that a callchain may take; 0: as long as it does */
	const char *symfs;     /* directory with the guest's files; NULL */
	const char *from_line; /* sampling starts at the first console line that holds it; NULL: at
				  once */
	const char *output;
	enum perspective perspective;
	unsigned int compression; /* zstd level, 0 for none */
	const char *kallsyms, *vmlinux, *btf;
	bool buildid_cache;
	bool disk_symbols;                            /* look for names on the disks at the end */
	enum breakpoint_priority breakpoint_priority; /* between watches and the guest */
	struct watch_spec watches[RUN_WATCHES_MAX];
	size_t watch_count;
	size_t ring_size; /* bytes of each vCPU's ring */

	uint64_t flight_time;  /* ns of samples that the flight recorder keeps; 0: what flight_size
				  holds */
	uint64_t flight_size;  /* bytes of all rings; 0: what flight_time needs */
	uint64_t flight_after; /* ns of samples behind a trigger */
	unsigned int flight_max; /* files that the guest can cause */
	bool flight;             /* samples stay in memory until something is triggered */
	bool ring_size_given;    /* by --ring-size */

	struct trigger_options
		triggers; /* of the flight recorder, besides those that it always has */

	bool control;             /* listen for kvmscope ctl */
	const char *control_path; /* at this socket; NULL: at one in the runtime directory */
	const char *name;         /* that it has there; NULL: the pid */

	unsigned int timeout;  /* s until the guest is ended as failed; 0 never */
	unsigned int duration; /* s until the guest is ended as wanted; 0 never */
	bool reboot;           /* a reset starts the guest anew, and does not end the run */
	bool quiet, verbose;
};

/*
 * Fills OPTIONS from the command line; what is wrong in it, and --help, end
 * the program (EXIT_USAGE, EXIT_OK). Strings point into ARGV. Returns 0, or a
 * negative errno with its message for a file that can not be read.
 */
int run_options_parse(struct run_options *options, int argc, char **argv);
void run_options_free(struct run_options *options);

#endif
