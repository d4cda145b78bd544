/* SPDX-License-Identifier: Apache-2.0 */
/* How a domain is profiled: settings that the configuration and the domain's XML share. Any
 * thread. */
#ifndef KVMSCOPE_DAEMON_SETTINGS_H
#define KVMSCOPE_DAEMON_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#define SETTINGS_BACKEND_SIZE  16
#define SETTINGS_FREQUENCY_MAX 10000 /* Hz */

struct domain_settings {
	bool profile;           /* profile the domain */
	bool callchains;        /* if the backend provides them */
	bool agent;             /* use the guest agent, if there is a channel for it */
	unsigned int frequency; /* Hz of each vCPU's CPU time */
	bool cycles;            /* sample by cycles, not by CPU time */
	unsigned int outside;   /* further events: enum attach_outside */
	uint64_t flight;        /* ns of the flight recorder; 0: everything is recorded */
	uint64_t flight_memory; /* bytes that it may use, by the configuration only; 0: no limit */
	char backend[SETTINGS_BACKEND_SIZE]; /* as kvmscope attach --backend */
};

/* Sets the defaults: no profile; 99 Hz, auto, call chains, recordings. */
void settings_init(struct domain_settings *settings);

/*
 * Sets KEY to VALUE: profile (on, off), frequency (1 to 10000), event (as kvmscope attach --event),
 * backend (a name), flight (a time like 30s, or off), call-graph and agent (on, off). -ENOENT:
 * unknown setting; -EINVAL: invalid value. Both set a message, without control characters.
 */
int settings_set(struct domain_settings *settings, const char *key, const char *value);

/* True if both are the same profile. */
bool settings_are_same(const struct domain_settings *one, const struct domain_settings *other);

/* Parses on, yes, true, 1 and off, no, false, 0 into *VALUE; -EINVAL without a message. */
int settings_parse_switch(const char *text, bool *value);

#endif
