/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope.conf(5), the configuration of kvmscoped: sections of "key = value" lines, and comments
 * that begin with # or ;. Unknown keys are errors, so that a typing error does not go unnoticed.
 *
 *	[domains]		how domains are profiled
 *	[domain PATTERN]	the same for domains whose names match (fnmatch(3)); later ones win
 *	[recordings] [metrics] [push]
 *
 * Any thread.
 */
#ifndef KVMSCOPE_DAEMON_CONF_H
#define KVMSCOPE_DAEMON_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/daemon/domain_xml.h"
#include "vmm/daemon/push_spool.h"
#include "vmm/daemon/settings.h"

#define CONF_PATH "/etc/kvmscope.conf"
#define CONF_MAX  (1 << 20) /* bytes of the file */

/* A valid line of a section about domains. */
struct conf_setting {
	char *pattern, *key, *value; /* owned; pattern NULL: all domains */
};

struct conf {
	struct conf_setting *settings; /* owned, in the file's order */
	size_t setting_count, setting_capacity;
	bool ask_domains;            /* their XML may request and configure profiles */
	unsigned int frequency_max;  /* Hz that it may request */
	uint64_t flight_memory_max;  /* bytes for the flight recorder of a domain; 0: no limit */
	char *recordings;            /* directory; owned, as all strings here */
	uint64_t recordings_size;    /* bytes of one domain; 0: no limit */
	uint64_t recordings_age;     /* s; 0: no limit */
	uint64_t recordings_rotate;  /* s that one file covers */
	uint64_t recordings_reserve; /* bytes of the file system that stay free */
	char *metrics;               /* ADDRESS:PORT or path to listen at; NULL: none */
	char *push;                  /* URL to push to; NULL: none */
	enum push_format push_format;
	char *push_headers;       /* file with headers for it; NULL */
	char *push_ca;            /* file with trusted certificate authorities; NULL */
	char *push_spool;         /* directory */
	uint64_t push_spool_size; /* bytes */
	uint64_t push_interval;   /* s that a profile covers */
};

/* Sets the defaults. -ENOMEM. */
int conf_init(struct conf *conf);

/* Reads SIZE bytes at TEXT; NAME is the file, for messages. -EINVAL with the line and what is
 * wrong in it; -ENOMEM. */
int conf_parse(struct conf *conf, const char *text, size_t size, const char *name);

/* The same for the file PATH. The errors of open(2), -EFBIG. */
int conf_load(struct conf *conf, const char *path);

/* Also after a failed conf_init(). */
void conf_free(struct conf *conf);

/*
 * Determines how to profile DOMAIN: by the settings of all domains, of names that match, then by
 * its own as far as they are allowed. An error: its own are invalid; SETTINGS are then those of
 * the file.
 */
int conf_settings(const struct conf *conf, const struct domain_xml *domain,
		  struct domain_settings *settings);

#endif
