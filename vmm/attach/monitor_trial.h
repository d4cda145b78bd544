/* SPDX-License-Identifier: Apache-2.0 */
/* Tests whether QEMU's monitor works here, with a QEMU of our own: others serve one client each. */
#ifndef KVMSCOPE_ATTACH_MONITOR_TRIAL_H
#define KVMSCOPE_ATTACH_MONITOR_TRIAL_H

/*
 * Starts a QEMU without KVM whose guest does not run, requests from its monitor what an attachment
 * needs (vCPUs, memory, registers), and ends it; takes at most 20 s. -ENOENT: no QEMU is installed;
 * -ECHILD: it exited at once; -EPROTO: incomplete answers; also the errors of qmp_reader_start().
 * Main thread.
 */
int monitor_trial(void);

#endif
