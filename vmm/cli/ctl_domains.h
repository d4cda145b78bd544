/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope ctl for the domains of kvmscoped. The errors of control_call(). Main thread. */
#ifndef KVMSCOPE_CLI_CTL_DOMAINS_H
#define KVMSCOPE_CLI_CTL_DOMAINS_H

#include <jansson.h>
#include <stdbool.h>

#include "vmm/control/run_directory.h"

/* True if STATUS, an answer to "status", is from kvmscoped. */
bool ctl_is_daemon(const json_t *status);

/* Each prints a newline and a line of the status of a run or a domain, if ANSWER has its values:
 * the cost of sampling; the release of the guest's kernel. */
void ctl_print_cost(const json_t *answer);
void ctl_print_guest(const json_t *answer);

/* Prints the domains of DAEMON as a table, or with JSON adds them to ALL. */
int ctl_list_domains(const struct control_run *daemon, json_t *all, bool json);

/* Prints the status of DOMAIN. SOCKET is kvmscoped's; NULL: the default one, -ENOENT if there is
 * none. */
int ctl_domain_status(const char *socket, const char *domain, bool json);

/*
 * Waits up to half a minute for the first samples of DOMAIN. Makes its flight recorder write a
 * file, or finds the file that is being written, or while that has no samples the one before, and
 * prints its name. DISK_NAMES: first searches the domain's disks for missing symbols, for some
 * seconds.
 */
int ctl_domain_dump(const char *socket, const char *domain, bool json, bool disk_symbols);

/* Searches the disks of DOMAIN, or of each domain (NULL), for symbols that its latest recording
 * lacks, some seconds each. Symbols that were not found are searched again after a day. */
int ctl_domain_search(const char *socket, const char *domain);

#endif
