/* SPDX-License-Identifier: Apache-2.0 */
/* The agent as the first process of an initrd boot (rdinit=/kvmscope-agent): a child becomes the
 * agent, and the first process executes the initrd's own init.
 */
#ifndef KVMSCOPE_GUEST_AGENT_INIT_H
#define KVMSCOPE_GUEST_AGENT_INIT_H

/* Returns in the child only, which has private /proc, /sys and /dev mounts. The parent executes
 * $kvmscope_init, else /init, with the remaining arguments of ARGV, or prints why it cannot and
 * exits.
 */
void init_start_real(char **argv);

#endif
