/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/session/host_cpu.h"

#include <cpuid.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static char description[49], id[32];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_description(void)
{
	unsigned int words[3][4];

	for (unsigned int i = 0; i < 3; i++) {
		unsigned int *part = words[i];

		if (!__get_cpuid(0x80000002 + i, &part[0], &part[1], &part[2], &part[3]))
			return;
	}
	memcpy(description, words, sizeof(words)); /* the last byte stays 0 */
}

static void read_id(void)
{
	unsigned int highest, vendor[3], version, family, model, b, c, d;

	if (!__get_cpuid(0, &highest, &vendor[0], &vendor[2], &vendor[1]) ||
	    !__get_cpuid(1, &version, &b, &c, &d))
		return;
	family = version >> 8 & 0xf;
	model = version >> 4 & 0xf;
	if (family >= 6)
		model += version >> 12 & 0xf0;
	if (family == 0xf)
		family += version >> 20 & 0xff;
	snprintf(id, sizeof(id), "%.12s,%u,%u,%u", (const char *)vendor, family, model,
		 version & 0xf);
}

static void read_all(void)
{
	read_description();
	read_id();
}

const char *host_cpu_description(void)
{
	pthread_once(&once, read_all);
	return description;
}

const char *host_cpu_id(void)
{
	pthread_once(&once, read_all);
	return id;
}
