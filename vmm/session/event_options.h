/* SPDX-License-Identifier: Apache-2.0 */
/* --event of attach and run, and event of kvmscoped: a clock, and events of the time outside of the
 * guest. Any thread. */
#ifndef KVMSCOPE_SESSION_EVENT_OPTIONS_H
#define KVMSCOPE_SESSION_EVENT_OPTIONS_H

#include "vmm/attach/attachment.h"
#include "vmm/perf_data/perf_data_watch.h"

/* Sets the event and what is outside in OPTIONS from TEXT, "NAME,...", which is modified. -EINVAL,
 * with the message. */
int event_options_set(struct attach_options *options, char *text);

/* Adds the events of a recording after its clock to EVENTS, in the order of their samples. OUTSIDE:
 * see attach_options. */
void event_options_list(unsigned int outside, struct perf_data_watches *events);

#endif
