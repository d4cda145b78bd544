/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope ctl for the domains that kvmscoped profiles. Main thread. */
#ifndef KVMSCOPE_CLI_CTL_DOMAINS_H
#define KVMSCOPE_CLI_CTL_DOMAINS_H

#include <jansson.h>
#include <stdbool.h>

#include "vmm/control/run_directory.h"

/* Is STATUS, an answer to "status", one of kvmscoped? */
bool ctl_is_daemon(const json_t *status);

/* Prints the domains of DAEMON as a table, or adds them to ALL. The errors of control_call(). */
int ctl_list_domains(const struct control_run *daemon, json_t *all, bool json);

/* Prints how DOMAIN stands. SOCKET is kvmscoped's; NULL: the usual one. The errors of
 * control_call(), -ENOENT. */
int ctl_domain_status(const char *socket, const char *domain, bool json);

/*
 * Waits for the first samples of DOMAIN, half a minute at most. Has its flight recorder write what
 * it holds, or names the file that is written now, or while that has none the one before it: prints
 * the name that the file has when all is done. DISK_NAMES: what in it has no names is looked for on
 * the domain's disks before, for some seconds.
 */
int ctl_domain_dump(const char *socket, const char *domain, bool json, bool disk_symbols);

/*
 * Looks for names that the latest recording of DOMAIN, or of each (NULL), lacks on the domain's
 * disks, some seconds each; what these had not is looked for once a day. The errors of asking
 * kvmscoped.
 */
int ctl_domain_names(const char *socket, const char *domain);

#endif
