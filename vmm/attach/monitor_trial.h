/* SPDX-License-Identifier: Apache-2.0 */
/* Does QEMU's monitor work here? Asked of a QEMU of our own, as those of others serve one client
 * each. */
#ifndef KVMSCOPE_ATTACH_MONITOR_TRIAL_H
#define KVMSCOPE_ATTACH_MONITOR_TRIAL_H

/*
 * Starts a QEMU without KVM whose guest does not run, asks its monitor for what an attachment does
 * (vCPUs, memory, registers) and ends it; 20 s at most. -ENOENT: no QEMU is installed; -ECHILD: it
 * ended at once; -EPROTO: it does not tell; the errors of qmp_reader_start(). Main thread.
 */
int monitor_trial(void);

#endif
