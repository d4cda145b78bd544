/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of a QEMU, as in /proc/PID/cmdline: NUL-terminated words, untrusted. Options are
 * "a=b,c,d=e" with doubled commas in values (QEMU: util/qemu-option.c, get_opt_value()). Any
 * thread.
 */
#ifndef KVMSCOPE_ATTACH_QEMU_COMMAND_LINE_H
#define KVMSCOPE_ATTACH_QEMU_COMMAND_LINE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define QEMU_COMMAND_LINE_MAX (256u << 10)
#define QEMU_OPTION_MAX       PATH_MAX

/* Reads the command line of process PID, for free(). NULL, with SIZE 0: there is none, or it is too
 * long. */
char *qemu_command_line_read(pid_t pid, size_t *size);

/* Words that are not read yet. */
struct qemu_arguments {
	const char *at, *end;
};

/* Those of the command line LINE of SIZE bytes; none if the last one is cut. */
struct qemu_arguments qemu_arguments_of(const char *line, size_t size);

/* The next word with the word after it; false: there are no more. */
bool qemu_next_pair(struct qemu_arguments *words, const char **option, const char **value);

/* Copies the next one of OPTIONS and advances to the following. False: no more, or too long. */
bool qemu_next_option(const char **options, char *option, size_t size);

/* Copies the value of KEY in OPTIONS, "on" for a flag. False: absent or too long. */
bool qemu_get_option(const char *options, const char *key, char *value, size_t size);

/* The name of a QEMU's guest in its command line (-name), which libvirt sets to the domain's. */

#define QEMU_NAME_SIZE 256

/* Finds the NAME in COMMAND_LINE, of SIZE bytes: the value of guest, or the first value without
 * a key. May contain any bytes. False: absent or too long. */
bool qemu_name_parse(const char *command_line, size_t size, char name[QEMU_NAME_SIZE]);

/* The same for process PID, whatever it is. */
bool qemu_name(pid_t pid, char name[QEMU_NAME_SIZE]);

/*
 * Upper limit of the ids of all vCPUs, present and hot-pluggable, of the QEMU with COMMAND_LINE, of
 * SIZE bytes, by its option -smp; at most VMM_VCPUS_MAX. Ids are APIC IDs, with separate bits for
 * each level of the topology, so there are gaps (QEMU: include/hw/i386/topology.h). 0: not
 * specified.
 */
unsigned int qemu_vcpu_ids_parse(const char *command_line, size_t size);

/* The same for process PID, whatever it is. */
unsigned int qemu_vcpu_ids(pid_t pid);

/* What of a guest is encrypted, so that the host cannot read it. */
enum guest_encryption {
	GUEST_PLAIN,
	GUEST_SEV,     /* memory */
	GUEST_SEV_ANY, /* memory, and perhaps registers: as if they were, as in the following */
	GUEST_SEV_ES,
	GUEST_SEV_SNP,
	GUEST_TDX,
};

/*
 * That of the QEMU with COMMAND_LINE, of SIZE bytes: by its -object sev-guest (with registers by
 * bit 2 of its policy: AMD 55766, table 2), sev-snp-guest or tdx-guest, as options or as JSON,
 * which libvirt writes. The object counts only if -machine refers to one.
 */
enum guest_encryption qemu_encryption_parse(const char *command_line, size_t size);

/* The same for process PID, whatever it is. */
enum guest_encryption qemu_encryption(pid_t pid);

#endif
