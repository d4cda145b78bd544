/* SPDX-License-Identifier: Apache-2.0 */
/* The VMs that kvmscope top shows, each with the process that samples it. Main thread. */
#ifndef KVMSCOPE_CLI_TOP_VMS_H
#define KVMSCOPE_CLI_TOP_VMS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "vmm/cli/top_model.h"
#include "vmm/cli/top_worker.h"

#define TOP_VMS_MAX 128

struct top_vms;

/* OPTIONS->pid 0: all VMs that we may inspect, as they come and go. -ENOMEM, or why the only VM
 * cannot be sampled. */
int top_vms_open(struct top_vms **vms, const struct top_worker_options *options);
/* Ends the processes. NULL is a no-op. */
void top_vms_close(struct top_vms *vms);

/* Fills EVENTS of TOP_VMS_MAX entries for poll(2). Returns their number. */
size_t top_vms_events(const struct top_vms *vms, struct pollfd *events);

/* Receives the reports of EVENTS after poll(2), COUNT of them. False: nothing has changed. */
bool top_vms_receive(struct top_vms *vms, const struct pollfd *events, size_t count);

/* Finds VMs that have started or ended, and tries again those whose sampling has failed. False:
 * the list is unchanged. */
bool top_vms_scan(struct top_vms *vms);

/* Copies pointers, sorted by top_vms_sort(), valid until the next receive or scan, to LIST of
 * TOP_VMS_MAX entries. Returns their number. */
size_t top_vms_list(const struct top_vms *vms, struct top_vm **list);

/* True once each VM has a report since top_vms_expect_next(), or an error. */
bool top_vms_are_complete(const struct top_vms *vms);
void top_vms_expect_next(struct top_vms *vms);

/* PAUSED: reports are dropped, and the list stays as it is without a scan. */
void top_vms_set_paused(struct top_vms *vms, bool paused);

void top_vms_set_interval(struct top_vms *vms, uint64_t interval);

#endif
