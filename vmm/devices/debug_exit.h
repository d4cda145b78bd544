/* SPDX-License-Identifier: Apache-2.0 */
/* The debug-exit port: a guest ends by writing its exit value to port 0xf4, as with QEMU's
 * isa-debug-exit, except that the value is not changed. */
#ifndef KVMSCOPE_DEVICES_DEBUG_EXIT_H
#define KVMSCOPE_DEVICES_DEBUG_EXIT_H

#include <stdint.h>

#include "vmm/devices/bus.h"

#define DEBUG_EXIT_PORT 0xf4

struct debug_exit {
	/* VALUE is the written value, 1, 2 or 4 bytes wide. On that vCPU's thread. */
	void (*exit)(void *context, uint32_t value);
	void *context;
};

/* Adds the port to BUS; DEVICE must live as long. Reads return 0. The errors of bus_add(). */
int debug_exit_add(struct debug_exit *device, struct bus *bus);

#endif
