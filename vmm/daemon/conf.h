/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope.conf(5): what kvmscoped does. Sections of "key = value" lines; a line that starts with #
 *or ; is a comment. What is not known is an error, with its line: a setting that is misspelt does
 *not stay unnoticed.
 *
 *	[domains]		how domains are profiled
 *	[domain PATTERN]	the same for those whose names match (fnmatch(3)); later sections
 *win [recordings] [metrics] [push]
 *
 * Any thread.
 */
#ifndef KVMSCOPE_DAEMON_CONF_H
#define KVMSCOPE_DAEMON_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/daemon/domain_xml.h"
#include "vmm/daemon/settings.h"

#define CONF_PATH "/etc/kvmscope.conf"
#define CONF_MAX  (1 << 20) /* bytes of the file */

/* One line of a section about domains; valid, as it was tried. */
struct conf_setting {
	char *pattern, *key, *value; /* owned; a NULL pattern: all domains */
};

struct conf {
	struct conf_setting *settings; /* owned, in the file's order */
	size_t setting_count;
	bool ask_domains;           /* their XML may turn profiles on, and say how */
	unsigned int frequency_max; /* Hz that it may ask for */
	uint64_t
		flight_memory_max; /* bytes that the flight recorder of one may take; 0: no limit */
	char *recordings;          /* directory; owned, as all strings here */
	uint64_t recordings_size;  /* bytes of one domain; 0: no limit */
	uint64_t recordings_age;   /* s; 0: no limit */
	uint64_t recordings_rotate;  /* s that one file is of */
	uint64_t recordings_reserve; /* bytes of the file system that are left free */
	char *metrics;               /* ADDRESS:PORT to listen at; NULL: none */
	char *push;                  /* URL to push to; NULL: none */
	char *push_headers;          /* file of its headers; NULL */
	char *push_ca;            /* file of the authorities that its store is believed by; NULL */
	char *push_spool;         /* directory */
	uint64_t push_spool_size; /* bytes */
	uint64_t push_interval;   /* s that a profile is of */
};

/* What holds without a file. -ENOMEM. */
int conf_init(struct conf *conf);

/* Reads SIZE bytes at TEXT over that; NAME is the file's, for messages. -EINVAL: what is wrong in
 * which line; -ENOMEM. */
int conf_parse(struct conf *conf, const char *text, size_t size, const char *name);

/* The same from the file PATH. The errors of open(2), -EFBIG. */
int conf_load(struct conf *conf, const char *path);

/* For a conf_init() that failed, too. */
void conf_free(struct conf *conf);

/*
 * How DOMAIN is to be profiled: what the file says of all, then of names like its, then what it
 * says itself, as far as it may. An error: what it says itself is wrong; SETTINGS are then those
 * without.
 */
int conf_settings(const struct conf *conf, const struct domain_xml *domain,
		  struct domain_settings *settings);

#endif
