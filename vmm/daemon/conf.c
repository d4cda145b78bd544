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

enum kind { TEXT, PATH, SIZE, SECONDS, SECONDS_MIN_1, SWITCH, FREQUENCY, FORMAT };

static const struct key {
	enum section section;
	const char *name;
	enum kind kind;
	size_t offset; /* in struct conf */
} keys[] = {
	{ SECTION_DOMAINS, "ask-domains", SWITCH, offsetof(struct conf, ask_domains) },
	{ SECTION_DOMAINS, "frequency-max", FREQUENCY, offsetof(struct conf, frequency_max) },
	{ SECTION_DOMAINS, "flight-memory-max", SIZE, offsetof(struct conf, flight_memory_max) },
	{ SECTION_RECORDINGS, "directory", PATH, offsetof(struct conf, recordings) },
	{ SECTION_RECORDINGS, "size", SIZE, offsetof(struct conf, recordings_size) },
	{ SECTION_RECORDINGS, "age", SECONDS, offsetof(struct conf, recordings_age) },
	{ SECTION_RECORDINGS, "reserve", SIZE, offsetof(struct conf, recordings_reserve) },
	{ SECTION_RECORDINGS, "rotate", SECONDS_MIN_1, offsetof(struct conf, recordings_rotate) },
	{ SECTION_METRICS, "listen", TEXT, offsetof(struct conf, metrics) },
	{ SECTION_PUSH, "url", TEXT, offsetof(struct conf, push) },
	{ SECTION_PUSH, "format", FORMAT, offsetof(struct conf, push_format) },
	{ SECTION_PUSH, "header-file", PATH, offsetof(struct conf, push_headers) },
	{ SECTION_PUSH, "ca-file", PATH, offsetof(struct conf, push_ca) },
	{ SECTION_PUSH, "spool", PATH, offsetof(struct conf, push_spool) },
	{ SECTION_PUSH, "spool-size", SIZE, offsetof(struct conf, push_spool_size) },
	{ SECTION_PUSH, "interval", SECONDS_MIN_1, offsetof(struct conf, push_interval) },
};

static const char *const section_names[] = { NULL, "domains", "recordings", "metrics", "push" };

static int set_string(char **string, const char *value)
{
	char *copy = value ? strdup(value) : NULL;

	if (value && !copy)
		return error_set(-ENOMEM, "no memory for the configuration");
	free(*string);
	*string = copy;
	return 0;
}

static int set_seconds(uint64_t *seconds, const struct key *key, const char *value)
{
	uint64_t time, least = key->kind == SECONDS_MIN_1 ? NS_PER_S : 0;

	if (parse_duration(value, &time) || time < least)
		return error_set(-EINVAL, "%s must be a time like 10min or 24h%s", key->name,
				 least ? ", at least 1s" : "");
	*seconds = time / NS_PER_S;
	return 0;
}

static int set_frequency(unsigned int *frequency, const struct key *key, const char *value)
{
	struct domain_settings settings;
	int error = settings_set(&settings, "frequency", value);

	if (error)
		return error_set(error, "%s must be a number from 1 to %d", key->name,
				 SETTINGS_FREQUENCY_MAX);
	*frequency = settings.frequency;
	return 0;
}

static int set_format(enum push_format *format, const char *value)
{
	bool otlp = !strcmp(value, "otlp");

	if (!otlp && strcmp(value, "pyroscope") != 0)
		return error_set(-EINVAL, "format must be pyroscope or otlp");
	*format = otlp ? PUSH_OTLP : PUSH_PYROSCOPE;
	return 0;
}

static int set_value(struct conf *conf, const struct key *key, const char *value)
{
	void *variable = (char *)conf + key->offset;
	bool on;

	switch (key->kind) {
	case TEXT: /* or off */
		return set_string(variable, settings_parse_switch(value, &on) || on ? value : NULL);
	case PATH:
		return *value == '/' ? set_string(variable, value)
				     : error_set(-EINVAL, "%s must be an absolute path", key->name);
	case SIZE:
		return parse_size(value, variable)
			       ? error_set(-EINVAL, "%s must be a size like 512M or 2G", key->name)
			       : 0;
	case SECONDS:
	case SECONDS_MIN_1:
		return set_seconds(variable, key, value);
	case SWITCH:
		return settings_parse_switch(value, variable)
			       ? error_set(-EINVAL, "%s must be on or off", key->name)
			       : 0;
	case FREQUENCY:
		return set_frequency(variable, key, value);
	case FORMAT:
		return set_format(variable, value);
	}
	return 0;
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

static int set(struct parser *parser, const char *name, const char *value)
{
	if (parser->section == SECTION_NONE)
		return error_set(-EINVAL, "'%s' is before the first [section]", name);
	for (size_t i = 0; !parser->pattern && i < sizeof(keys) / sizeof(keys[0]); i++)
		if (keys[i].section == parser->section && !strcmp(keys[i].name, name))
			return set_value(parser->conf, &keys[i], value);
	return parser->section == SECTION_DOMAINS ? keep_setting(parser, name, value)
						  : error_set(-ENOENT, "[%s] has no '%s'",
							      section_names[parser->section], name);
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
	char *end = strchr(line, ']');
	char *name = line + 1;

	if (!end || end[1])
		return error_set(-EINVAL, "a section is [NAME]");
	*end = '\0';
	name = trim(name);
	parser->pattern = NULL;
	for (int i = SECTION_DOMAINS; i <= SECTION_PUSH; i++)
		if (!strcmp(name, section_names[i])) {
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
