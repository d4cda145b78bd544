/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "shared/parse_number.h"
#include "vmm/attach/backend.h"
#include "vmm/session/event_options.h"

#define SHOWN 40 /* bytes of a value in a message */

void settings_init(struct domain_settings *settings)
{
	*settings = (struct domain_settings){
		.callchains = true, .agent = true, .frequency = 99, .backend = "auto"
	};
}

int settings_parse_switch(const char *text, bool *value)
{
	static const char *const words[][2] = {
		{ "off", "on" }, { "no", "yes" }, { "false", "true" }, { "0", "1" }
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		for (int on = 0; on < 2; on++)
			if (!strcmp(text, words[i][on])) {
				*value = on;
				return 0;
			}
	return -EINVAL;
}

/* Returns TEXT as one line of printable characters. */
static const char *printable(const char *text, char copy[SHOWN + 1])
{
	size_t length = 0;

	for (; text[length] && length < SHOWN; length++)
		copy[length] = isprint((unsigned char)text[length]) ? text[length] : '?';
	copy[length] = '\0';
	return copy;
}

static int refuse(const char *key, const char *value, const char *expected)
{
	char copy[SHOWN + 1];

	return error_set(-EINVAL, "%s is '%s': it must be %s", key, printable(value, copy),
			 expected);
}

static int set_switch(bool *setting, const char *key, const char *value)
{
	return settings_parse_switch(value, setting) ? refuse(key, value, "on or off") : 0;
}

static int set_frequency(struct domain_settings *settings, const char *key, const char *value)
{
	uint64_t number = 0;
	const char *end = parse_decimal(value, SETTINGS_FREQUENCY_MAX, &number);

	if (!end || *end || !number)
		return refuse(key, value, "samples per second, a number from 1 to 10000");
	settings->frequency = (unsigned int)number;
	return 0;
}

static int set_backend(struct domain_settings *settings, const char *key, const char *value)
{
	if (strlen(value) >= sizeof(settings->backend) ||
	    (strcmp(value, "auto") != 0 && !attach_backend_find(value)))
		return refuse(key, value, "auto, or a backend of kvmscope attach --help");
	memcpy(settings->backend, value, strlen(value) + 1);
	return 0;
}

static int set_event(struct domain_settings *settings, const char *key, const char *value)
{
	struct attach_options events;
	char copy[64];

	if (snprintf(copy, sizeof(copy), "%s", value) >= (int)sizeof(copy) ||
	    event_options_set(&events, copy))
		return refuse(key, value, "cpu-clock or cycles, and kvm:exit and kvm:off-cpu");
	settings->cycles = events.event == ATTACH_CYCLES;
	settings->outside = events.outside;
	return 0;
}

static int set_flight(struct domain_settings *settings, const char *key, const char *value)
{
	bool on;
	uint64_t time;

	if (!settings_parse_switch(value, &on) && !on) {
		settings->flight = 0;
		return 0;
	}
	if (parse_duration(value, &time) || !time)
		return refuse(key, value, "a time like 30s, or off");
	settings->flight = time;
	return 0;
}

int settings_set(struct domain_settings *settings, const char *key, const char *value)
{
	char copy[SHOWN + 1];

	if (!strcmp(key, "profile"))
		return set_switch(&settings->profile, key, value);
	if (!strcmp(key, "call-graph"))
		return set_switch(&settings->callchains, key, value);
	if (!strcmp(key, "agent"))
		return set_switch(&settings->agent, key, value);
	if (!strcmp(key, "frequency"))
		return set_frequency(settings, key, value);
	if (!strcmp(key, "event"))
		return set_event(settings, key, value);
	if (!strcmp(key, "backend"))
		return set_backend(settings, key, value);
	if (!strcmp(key, "flight"))
		return set_flight(settings, key, value);
	return error_set(
		-ENOENT,
		"there is no setting '%s' for a domain; there are profile, frequency, event, backend, "
		"flight, call-graph and agent",
		printable(key, copy));
}

bool settings_are_same(const struct domain_settings *one, const struct domain_settings *other)
{
	return one->profile == other->profile && one->callchains == other->callchains &&
	       one->agent == other->agent && one->frequency == other->frequency &&
	       one->cycles == other->cycles && one->outside == other->outside &&
	       one->flight == other->flight && one->flight_memory == other->flight_memory &&
	       !strcmp(one->backend, other->backend);
}
