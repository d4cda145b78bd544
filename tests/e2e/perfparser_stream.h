/* SPDX-License-Identifier: Apache-2.0 */
/* What hotspot-perfparser writes for hotspot (app/perfunwind.h of perfparser 5.12 and later). */
#ifndef KVMSCOPE_TESTS_E2E_PERFPARSER_STREAM_H
#define KVMSCOPE_TESTS_E2E_PERFPARSER_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* Calls EACH for every sample with the name and the file of its innermost function, "" if they are
 * unknown. False: PATH is not such a stream. */
bool perfparser_each_sample(const char *path,
			    void (*each)(void *context, const char *name, const char *binary),
			    void *context);

#endif
