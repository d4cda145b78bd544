/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/conf.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/parse_number.h"
#include "shared/read_file.h"

#define RECORDINGS "/var/lib/kvmscope/recordings"
#define PUSH_SPOOL "/var/lib/kvmscope/push"
#define METRICS    "127.0.0.1:9754"

enum section { SECTION_NONE, SECTION_DOMAINS, SECTION_RECORDINGS, SECTION_METRICS, SECTION_PUSH };

struct parser {
	struct conf *conf;
	enum section section;
	const char *pattern; /* of a section about some domains; else NULL */
};

int conf_init(struct conf *conf)
{
	*conf = (struct conf){
		.ask_domains = true,
		.frequency_max = 1000,
		.flight_memory_max = 64ull << 20,
		.recordings = strdup(RECORDINGS),
		.recordings_size = 1ull << 30,
		.recordings_age = 7ull * 24 * 3600,
		.recordings_rotate = 600,
		.recordings_reserve = 1ull << 30,
		.metrics = strdup(METRICS),
		.push_spool = strdup(PUSH_SPOOL),
		.push_spool_size = 256ull << 20,
		.push_interval = 15,
	};
	return conf->recordings && conf->metrics && conf->push_spool
		       ? 0
		       : error_set(-ENOMEM, "no memory for the configuration");
}

void conf_free(struct conf *conf)
{
	for (size_t i = 0; i < conf->setting_count; i++) {
		free(conf->settings[i].pattern);
		free(conf->settings[i].key);
		free(conf->settings[i].value);
	}
	free(conf->settings);
	free(conf->recordings);
	free(conf->metrics);
	free(conf->push);
	free(conf->push_headers);
	free(conf->push_ca);
	free(conf->push_spool);
	*conf = (struct conf){ 0 };
}

/* The values. */

static int set_string(char **string, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return error_set(-ENOMEM, "no memory for the configuration");
	free(*string);
	*string = copy;
	return 0;
}

static int set_optional(char **string, const char *value)
{
	bool on;

	if (settings_parse_switch(value, &on) || on)
		return set_string(string, value);
	free(*string);
	*string = NULL;
	return 0;
}

static int set_size(uint64_t *size, const char *key, const char *value)
{
	return parse_size(value, size)
		       ? error_set(-EINVAL, "%s must be a size like 512M or 2G", key)
		       : 0;
}

/* s */
static int set_time(uint64_t *seconds, const char *key, const char *value)
{
	uint64_t time;

	if (parse_duration(value, &time))
		return error_set(-EINVAL, "%s must be a time like 10min or 24h", key);
	*seconds = time / NS_PER_S;
	return 0;
}

static int set_path(char **directory, const char *key, const char *value)
{
	return *value == '/' ? set_string(directory, value)
			     : error_set(-EINVAL, "%s must be an absolute path", key);
}

static int set_frequency_max(struct conf *conf, const char *key, const char *value)
{
	struct domain_settings settings;
	int error = settings_set(&settings, "frequency", value);

	if (error)
		return error_set(error, "%s must be a number from 1 to %d", key,
				 SETTINGS_FREQUENCY_MAX);
	conf->frequency_max = settings.frequency;
	return 0;
}

static int set_ask_domains(struct conf *conf, const char *key, const char *value)
{
	return settings_parse_switch(value, &conf->ask_domains)
		       ? error_set(-EINVAL, "%s must be on or off", key)
		       : 0;
}

static int unknown(const char *section, const char *key)
{
	return error_set(-ENOENT, "[%s] has no '%s'", section, key);
}

/* Parsed now to report errors here; applied when a domain is profiled. */
static int keep_setting(struct parser *parser, const char *key, const char *value)
{
	struct conf *conf = parser->conf;
	struct domain_settings tried;
	struct conf_setting *added;
	int error = settings_set(&tried, key, value);

	if (error)
		return error;
	if (array_reserve(&conf->settings, &conf->setting_capacity, conf->setting_count + 1))
		return error_set(-ENOMEM, "no memory for the configuration");
	added = &conf->settings[conf->setting_count++];
	*added = (struct conf_setting){
		.pattern = parser->pattern ? strdup(parser->pattern) : NULL,
		.key = strdup(key),
		.value = strdup(value),
	};
	return added->key && added->value && (added->pattern || !parser->pattern)
		       ? 0
		       : error_set(-ENOMEM, "no memory for the configuration");
}

static int set_domains(struct parser *parser, const char *key, const char *value)
{
	if (!parser->pattern && !strcmp(key, "ask-domains"))
		return set_ask_domains(parser->conf, key, value);
	if (!parser->pattern && !strcmp(key, "frequency-max"))
		return set_frequency_max(parser->conf, key, value);
	if (!parser->pattern && !strcmp(key, "flight-memory-max"))
		return set_size(&parser->conf->flight_memory_max, key, value);
	return keep_setting(parser, key, value);
}

static int set_recordings(struct conf *conf, const char *key, const char *value)
{
	if (!strcmp(key, "directory"))
		return set_path(&conf->recordings, key, value);
	if (!strcmp(key, "size"))
		return set_size(&conf->recordings_size, key, value);
	if (!strcmp(key, "age"))
		return set_time(&conf->recordings_age, key, value);
	if (!strcmp(key, "reserve"))
		return set_size(&conf->recordings_reserve, key, value);
	if (strcmp(key, "rotate") != 0)
		return unknown("recordings", key);
	if (set_time(&conf->recordings_rotate, key, value) || !conf->recordings_rotate)
		return error_set(-EINVAL, "rotate must be a time like 10min, a second at least");
	return 0;
}

static int set_metrics(struct conf *conf, const char *key, const char *value)
{
	return strcmp(key, "listen") ? unknown("metrics", key)
				     : set_optional(&conf->metrics, value);
}

static int set_push(struct conf *conf, const char *key, const char *value)
{
	if (!strcmp(key, "url"))
		return set_optional(&conf->push, value);
	if (!strcmp(key, "header-file"))
		return set_path(&conf->push_headers, key, value);
	if (!strcmp(key, "ca-file"))
		return set_path(&conf->push_ca, key, value);
	if (!strcmp(key, "spool"))
		return set_path(&conf->push_spool, key, value);
	if (!strcmp(key, "spool-size"))
		return set_size(&conf->push_spool_size, key, value);
	if (strcmp(key, "interval") != 0)
		return unknown("push", key);
	if (set_time(&conf->push_interval, key, value) || !conf->push_interval)
		return error_set(-EINVAL, "interval must be a time like 15s, a second at least");
	return 0;
}

static int set(struct parser *parser, const char *key, const char *value)
{
	switch (parser->section) {
	case SECTION_DOMAINS:
		return set_domains(parser, key, value);
	case SECTION_RECORDINGS:
		return set_recordings(parser->conf, key, value);
	case SECTION_METRICS:
		return set_metrics(parser->conf, key, value);
	case SECTION_PUSH:
		return set_push(parser->conf, key, value);
	case SECTION_NONE:
		break;
	}
	return error_set(-EINVAL, "'%s' is before the first [section]", key);
}

/* The lines. */

static char *trim(char *text)
{
	size_t length;

	text += strspn(text, " \t\r");
	length = strlen(text);
	while (length && strchr(" \t\r", text[length - 1]))
		text[--length] = '\0';
	return text;
}

static int begin_section(struct parser *parser, char *line)
{
	static const char *const names[] = { NULL, "domains", "recordings", "metrics", "push" };
	char *end = strchr(line, ']');
	char *name = line + 1;

	if (!end || end[1])
		return error_set(-EINVAL, "a section is [NAME]");
	*end = '\0';
	name = trim(name);
	parser->pattern = NULL;
	for (int i = SECTION_DOMAINS; i <= SECTION_PUSH; i++)
		if (!strcmp(name, names[i])) {
			parser->section = i;
			return 0;
		}
	if (strncmp(name, "domain ", strlen("domain ")) != 0)
		return error_set(
			-ENOENT,
			"there is no section [%s]; there are domains, domain PATTERN, recordings, metrics "
			"and push",
			name);
	parser->section = SECTION_DOMAINS;
	parser->pattern = trim(name + strlen("domain "));
	return 0;
}

static int parse_line(struct parser *parser, char *line)
{
	char *equals;

	line = trim(line);
	if (!*line || *line == '#' || *line == ';')
		return 0;
	if (*line == '[')
		return begin_section(parser, line);
	equals = strchr(line, '=');
	if (!equals)
		return error_set(-EINVAL, "a line is 'key = value' or [section]");
	*equals = '\0';
	return set(parser, trim(line), trim(equals + 1));
}

/* Cuts TEXT into lines in place: patterns stay valid while it is parsed. */
static int parse_lines(struct parser *parser, char *text, const char *name)
{
	unsigned int number = 0;
	char *line;

	while ((line = strsep(&text, "\n"))) {
		int error;

		number++;
		error = parse_line(parser, line);
		if (error == -ENOMEM)
			return error;
		if (error)
			return error_set(-EINVAL, "%s, line %u: %s", name, number, error_message());
	}
	return 0;
}

int conf_parse(struct conf *conf, const char *text, size_t size, const char *name)
{
	struct parser parser = { .conf = conf };
	char *copy;
	int error;

	if (memchr(text, '\0', size))
		return error_set(-EINVAL, "%s is not a text file: it contains a byte 0", name);
	copy = strndup(text, size);
	if (!copy)
		return error_set(-ENOMEM, "no memory for %s", name);
	error = parse_lines(&parser, copy, name);
	free(copy);
	return error;
}

int conf_load(struct conf *conf, const char *path)
{
	size_t size;
	char *text;
	int error = read_file(path, CONF_MAX, &text, &size);

	if (error == -EFBIG)
		return error_set(error, "%s has more than %d bytes", path, CONF_MAX);
	if (error)
		return error_set(error, "cannot read %s: %s", path, strerror(-error));
	error = conf_parse(conf, text, size, path);
	free(text);
	return error;
}

static bool applies_to(const struct conf_setting *setting, const char *name)
{
	return !setting->pattern || !fnmatch(setting->pattern, name, 0);
}

int conf_settings(const struct conf *conf, const struct domain_xml *domain,
		  struct domain_settings *settings)
{
	struct domain_settings own;
	int error;

	settings_init(settings);
	settings->flight_memory = conf->flight_memory_max;
	for (size_t i = 0; i < conf->setting_count; i++)
		if (applies_to(&conf->settings[i], domain->name))
			settings_set(settings, conf->settings[i].key, conf->settings[i].value);
	if (!conf->ask_domains)
		return 0;
	own = *settings;
	error = domain_xml_apply(domain, &own);
	if (!error && own.frequency > conf->frequency_max && own.frequency > settings->frequency)
		error = error_set(-EPERM, "it requests %u Hz; frequency-max in %s allows %u",
				  own.frequency, CONF_PATH, conf->frequency_max);
	if (!error)
		*settings = own;
	return error;
}
