// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/remote_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/libvirt_domain.h"

/* Bytes that are asked for at once: a kernel's tables are some MiB, in a row. */
#define BLOCK  DOMAIN_MEMORY_MAX
#define BLOCKS 128u
#define AGE    (250 * NS_PER_MS)

struct block {
	uint64_t gpa, time; /* ns when it was asked for; 0: it is empty */
	bool there;         /* else libvirt did not tell */
	uint8_t bytes[BLOCK];
};

struct remote_memory {
	struct domain *domain;
	pthread_mutex_t lock;
	struct block blocks[BLOCKS]; /* each GPA has one place */
};

int remote_memory_open(struct remote_memory **result, const char *name, const char *uri)
{
	struct remote_memory *memory = calloc(1, sizeof(*memory));
	int error;

	if (!memory)
		return error_set(-ENOMEM, "no memory for what libvirt tells of a guest's");
	error = domain_open(&memory->domain, name, uri);
	if (error) {
		free(memory);
		return error;
	}
	pthread_mutex_init(&memory->lock, NULL);
	*result = memory;
	return 0;
}

/* With the lock. NULL: it can not be had. */
static const struct block *get(struct remote_memory *memory, uint64_t gpa)
{
	struct block *block = &memory->blocks[gpa / BLOCK % BLOCKS];
	uint64_t time = clock_ns(CLOCK_MONOTONIC);

	if (!block->time || block->gpa != gpa || time - block->time > AGE) {
		block->gpa = gpa;
		block->time = time;
		block->there = !domain_read_memory(memory->domain, gpa, block->bytes, BLOCK);
	}
	return block->there ? block : NULL;
}

int remote_memory_read(struct remote_memory *memory, uint64_t gpa, void *to, size_t size)
{
	uint8_t *bytes = to;
	int error = 0;

	pthread_mutex_lock(&memory->lock);
	while (size && !error) {
		size_t offset = gpa % BLOCK, part = BLOCK - offset < size ? BLOCK - offset : size;
		const struct block *block = get(memory, gpa - offset);

		if (block)
			memcpy(bytes, block->bytes + offset, part);
		else
			error = -EFAULT;
		bytes += part;
		gpa += part;
		size -= part;
	}
	pthread_mutex_unlock(&memory->lock);
	return error;
}

void remote_memory_close(struct remote_memory *memory)
{
	if (!memory)
		return;
	domain_close(memory->domain);
	pthread_mutex_destroy(&memory->lock);
	free(memory);
}
