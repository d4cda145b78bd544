// SPDX-License-Identifier: Apache-2.0
#include "vmm/daemon/recorded_domain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"

struct recorded_domain *recorded_domain_create(const char *file, const char *name)
{
	struct recorded_domain *domain = calloc(1, sizeof(*domain));

	if (domain)
		domain->name = strdup(name);
	if (!domain || !domain->name) {
		free(domain);
		error_set(-ENOMEM, "no memory for another domain");
		return NULL;
	}
	snprintf(domain->file, sizeof(domain->file), "%s", file);
	return domain;
}

void recorded_domain_free(struct recorded_domain *domain)
{
	free(domain->name);
	free(domain->files);
	free(domain);
}

struct recorded_file *recorded_file_at(const struct recorded_domain *domain, size_t index)
{
	return &domain->files[domain->first + index];
}

void recorded_file_path(const struct recorded_domain *domain, uint64_t time,
			enum recording_state state, char path[RECORDING_PATH_SIZE])
{
	char name[RECORDING_NAME_SIZE];

	recording_file_name(time, state, name);
	snprintf(path, RECORDING_PATH_SIZE, "%s/%s", domain->file, name);
}

enum recording_state recorded_file_state(const struct recorded_file *file)
{
	return file->is_new ? RECORDING_NEW : RECORDING_COMPLETE;
}

int recorded_domain_append(struct recorded_domain *domain, const struct recorded_file *file)
{
	size_t used = domain->first + domain->count;

	if (domain->first > domain->count) {
		memmove(domain->files, recorded_file_at(domain, 0),
			domain->count * sizeof(*domain->files));
		domain->first = 0;
		used = domain->count;
	}
	if (used == domain->room) {
		size_t room = domain->room ? 2 * domain->room : 16;
		struct recorded_file *files = reallocarray(domain->files, room, sizeof(*files));

		if (!files)
			return error_set(-ENOMEM, "no memory for the files of a domain");
		domain->files = files;
		domain->room = room;
	}
	domain->files[used] = *file;
	domain->count++;
	domain->bytes += file->size;
	return 0;
}

void recorded_domain_drop_oldest(struct recorded_domain *domain)
{
	domain->bytes -= recorded_file_at(domain, 0)->size;
	domain->first++;
	domain->count--;
}
