/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How one domain is profiled: what the host's configuration and the domain's
 * own XML may both say, by the same names. Any thread.
 */
#ifndef KVMSCOPE_DAEMON_SETTINGS_H
#define KVMSCOPE_DAEMON_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#define SETTINGS_BACKEND_SIZE  16
#define SETTINGS_FREQUENCY_MAX 10000 /* Hz */

struct domain_settings {
	bool profile;           /* at all */
	bool callchains;        /* where the backend gives them */
	bool agent;             /* the guest's is talked with, where there is a channel for it */
	unsigned int frequency; /* Hz of each vCPU's CPU time */
	uint64_t flight;        /* ns that the flight recorder holds; 0: all is recorded instead */
	uint64_t flight_memory; /* bytes that it may take for that, the host's word alone; 0: no
				   limit */
	char backend[SETTINGS_BACKEND_SIZE]; /* as kvmscope attach --backend */
};

/* What holds where nobody says anything: no profile; 99 Hz, auto, callchains, recordings. */
void settings_init(struct domain_settings *settings);

/*
 * Sets what KEY names to VALUE: profile (on, off), frequency (1 to 10000), backend (a name that
 * attach knows), flight (a time like 30s, or off), call-graph and agent (on, off). -ENOENT: there
 * is no such setting; -EINVAL: not with that value; each with its message, in which neither is put
 * where it could harm a log line.
 */
int settings_set(struct domain_settings *settings, const char *key, const char *value);

/* Would profiling by ONE be the same as by OTHER? */
bool settings_are_same(const struct domain_settings *one, const struct domain_settings *other);

/* on, yes, true, 1 or off, no, false, 0 into *VALUE; -EINVAL without message. */
int settings_parse_switch(const char *text, bool *value);

#endif
