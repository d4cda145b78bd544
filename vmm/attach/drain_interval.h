/* SPDX-License-Identifier: Apache-2.0 */
/* How often samples are taken from a backend. Any thread. */
#ifndef KVMSCOPE_ATTACH_DRAIN_INTERVAL_H
#define KVMSCOPE_ATTACH_DRAIN_INTERVAL_H

#include <stddef.h>

/*
 * ms, from 1 to 200: so that there are as many samples each time at any FREQUENCY (Hz, of each
 * vCPU), and that ROOM samples (0: for any number), which is what the backend can hold, are twice
 * as many as VCPUS give meanwhile.
 */
int drain_interval(unsigned int frequency, size_t vcpus, size_t room);

#endif
