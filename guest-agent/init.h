/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent as the first process of an initrd boot (rdinit=/kvmscope-agent):
 * a child becomes the agent, and the first process becomes the init that
 * would have run otherwise.
 */
#ifndef KVMSCOPE_GUEST_AGENT_INIT_H
#define KVMSCOPE_GUEST_AGENT_INIT_H

/*
 * Returns in the child only, which has /proc, /sys and /dev to itself, whatever
 * the real init does with its mounts. The parent runs the environment's
 * kvmscope_init, else /init, with ARGV's other words; it prints why it could not, and exits.
 */
void init_start_real(char **argv);

#endif
