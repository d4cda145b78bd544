/* SPDX-License-Identifier: Apache-2.0 */
/* Which options `kvmscope run` has, and what --help says of them. */
#ifndef KVMSCOPE_CLI_RUN_OPTION_LIST_H
#define KVMSCOPE_CLI_RUN_OPTION_LIST_H

#include <argp.h>

enum run_option_key {
	KEY_FREQUENCY = 'F',
	KEY_EVENT = 'e',
	KEY_OUTPUT = 'o',
	KEY_COMPRESS = 'z',
	KEY_QUIET = 'q',
	KEY_VERBOSE = 'v',
	KEY_KERNEL = 256,
	KEY_INITRD,
	KEY_APPEND,
	KEY_PROTOCOL,
	KEY_MODULE_TEXT,
	KEY_CPUS,
	KEY_MEM,
	KEY_DISK,
	KEY_REBOOT,
	KEY_CONSOLE,
	KEY_AGENT,
	KEY_AGENT_SOCKET,
	KEY_AGENT_MEMORY,
	KEY_PMU,
	KEY_NESTED,
	KEY_TIMEOUT,
	KEY_DURATION,
	KEY_NO_PROFILE,
	KEY_CLOCK,
	KEY_SAMPLER,
	KEY_FROM_LINE,
	KEY_NO_CALL_GRAPH,
	KEY_STACK_TIME,
	KEY_SYMFS,
	KEY_PERSPECTIVE,
	KEY_KALLSYMS,
	KEY_VMLINUX,
	KEY_BTF,
	KEY_NO_BUILDID_CACHE,
	KEY_NO_DISK_NAMES,
	KEY_RING_SIZE,
	KEY_WATCH,
	KEY_BP_PRIORITY,
	KEY_FLIGHT,
	KEY_AFTER,
	KEY_FLIGHT_MAX,
	KEY_TRIGGER,
	KEY_NAME,
	KEY_CONTROL,
	KEY_NO_CONTROL,
};

/* For struct argp: of the keys above, in groups with headings; and what stands around the options.
 */
extern const struct argp_option run_option_list[];
extern const char run_option_help[];

#endif
