/* SPDX-License-Identifier: Apache-2.0 */
/* What the guest of a QEMU is called, by its command line (-name), as libvirt calls its domains.
 * Any thread.
 */
#ifndef KVMSCOPE_ATTACH_QEMU_NAME_H
#define KVMSCOPE_ATTACH_QEMU_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define QEMU_NAME_SIZE 256

/*
 * Into NAME, of the QEMU with COMMAND_LINE, SIZE bytes as /proc/PID/cmdline has it: the value of
 * guest, which may stand at the head without the word. Any bytes: whoever started the process chose
 * them. False: it says none, or one that does not fit.
 */
bool qemu_name_parse(const char *command_line, size_t size, char name[QEMU_NAME_SIZE]);

/* The same of process PID, whatever it is. */
bool qemu_name(pid_t pid, char name[QEMU_NAME_SIZE]);

#endif
