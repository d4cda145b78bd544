/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters on the command line of a Linux kernel. Any thread. */
#ifndef KVMSCOPE_BOOT_LINUX_PARAMETERS_H
#define KVMSCOPE_BOOT_LINUX_PARAMETERS_H

#include <stddef.h>

/* Number of bytes of LINE before the word "--", which ends the kernel's parameters. *VALUE is what
 * follows NAME, such as "pci=", in the last of them that starts with it, or NULL. */
size_t linux_parameter_find(const char *line, const char *name, const char **value);

#endif
