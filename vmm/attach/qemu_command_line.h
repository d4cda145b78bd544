/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of a QEMU, as /proc/PID/cmdline has it: words that end with NUL, written by
 * whoever started the process, or by itself. Options have the form "a=b,c,d=e", commas in values
 * are doubled (QEMU: util/qemu-option.c, get_opt_value()). Any thread.
 */
#ifndef KVMSCOPE_ATTACH_QEMU_COMMAND_LINE_H
#define KVMSCOPE_ATTACH_QEMU_COMMAND_LINE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define QEMU_COMMAND_LINE_MAX (256u << 10)
#define QEMU_OPTION_MAX       PATH_MAX

/* The command line of process PID, as far as it fits, into QEMU_COMMAND_LINE_MAX bytes at LINE; the
 * bytes, 0: there is none. */
size_t qemu_command_line_read(pid_t pid, char *line);

struct qemu_arguments {
	const char *at, *end;
};

/* The next word and the one behind it; false: there are no two any more. */
bool qemu_next_pair(struct qemu_arguments *words, const char **option, const char **value);

/* One of OPTIONS, and where the next one begins. False: there is none any more, or one is too long.
 */
bool qemu_next_option(const char **options, char *option, size_t size);

/* The value of KEY in OPTIONS; a flag alone is "on". False: it is not there, or is too long. */
bool qemu_get_option(const char *options, const char *key, char *value, size_t size);

/* What the guest of a QEMU is called, by its command line (-name), as libvirt calls its domains.
 * Any thread.
 */

#define QEMU_NAME_SIZE 256

/*
 * Into NAME, of the QEMU with COMMAND_LINE, SIZE bytes as /proc/PID/cmdline has it: the value of
 * guest, which may stand at the head without the word. Any bytes: whoever started the process chose
 * them. False: it says none, or one that does not fit.
 */
bool qemu_name_parse(const char *command_line, size_t size, char name[QEMU_NAME_SIZE]);

/* The same of process PID, whatever it is. */
bool qemu_name(pid_t pid, char name[QEMU_NAME_SIZE]);

/* How many vCPUs a QEMU may come to have, by its command line (-smp). Any thread. */

/*
 * The ids of all vCPUs that the QEMU with COMMAND_LINE, SIZE bytes as /proc/PID/cmdline has it, may
 * get while it runs are below it, VMM_VCPUS_MAX at most. They are APIC IDs, in which each level of
 * the topology has bits of its own, so they can be more than there are vCPUs (QEMU:
 * include/hw/i386/topology.h). 0: it does not say.
 */
unsigned int qemu_vcpu_ids_parse(const char *command_line, size_t size);

/* The same of process PID, whatever it is. */
unsigned int qemu_vcpu_ids(pid_t pid);

#endif
