/* SPDX-License-Identifier: Apache-2.0 */
/* Input: kvmscope.conf, and a message of libvirt's hook. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "vmm/daemon/conf.h"
#include "vmm/daemon/hook_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_message(const uint8_t *data, size_t size)
{
	struct hook_message message;

	if (hook_message_parse(&message, (const char *)data, size))
		return;
	assert(strlen(message.domain) < HOOK_WORD_MAX && strlen(message.operation) < HOOK_WORD_MAX);
	assert(message.xml + message.xml_size == (const char *)data + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct domain_xml domain = { .name = "web-1" };
	struct domain_settings settings;
	struct conf conf;

	read_message(data, size);
	if (conf_init(&conf))
		return 0;
	if (!conf_parse(&conf, (const char *)data, size, "fuzz.conf")) {
		conf_settings(&conf, &domain, &settings);
		assert(settings.frequency >= 1 && settings.frequency <= SETTINGS_FREQUENCY_MAX);
		assert(conf.recordings && conf.recordings_rotate);
	}
	conf_free(&conf);
	return 0;
}
