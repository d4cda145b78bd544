/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/mediated_pmu.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>

#include "shared/read_file.h"

bool mediated_pmu_is_enabled(const char *modules)
{
	static const char *const names[] = { "kvm", "kvm_intel", "kvm_amd" };
	char path[PATH_MAX], value[8];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s/parameters/enable_mediated_pmu", modules,
			 names[i]);
		if (read_small_file(AT_FDCWD, path, value, sizeof(value)) &&
		    (*value == 'Y' || *value == '1'))
			return true;
	}
	return false;
}
