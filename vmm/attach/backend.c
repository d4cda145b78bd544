// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/backend.h"

#include <string.h>

const struct attach_backend *const attach_backends[] = { &attach_bpf, &attach_perf, &attach_ptrace,
							 &attach_qmp, NULL };

const struct attach_backend *attach_backend_find(const char *name)
{
	for (size_t i = 0; attach_backends[i]; i++)
		if (!strcmp(attach_backends[i]->name, name))
			return attach_backends[i];
	return NULL;
}
