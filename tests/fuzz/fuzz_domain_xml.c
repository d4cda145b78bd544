/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the XML of a domain, written by anyone who may define domains. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "vmm/daemon/domain_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct domain_settings settings;
	struct domain_xml domain;

	settings_init(&settings);
	if (domain_xml_read(&domain, data, size))
		return 0;
	assert(*domain.name && strnlen(domain.name, sizeof(domain.name)) < sizeof(domain.name));
	assert(domain.pid >= 0);
	domain_xml_apply(&domain, &settings);
	assert(settings.frequency >= 1 && settings.frequency <= SETTINGS_FREQUENCY_MAX);
	return 0;
}
