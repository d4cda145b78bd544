/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/vmm_memory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/libvirt_domain.h"

/* Bytes per request: a kernel's tables are some contiguous MiB. */
#define BLOCK  DOMAIN_MEMORY_MAX
#define BLOCKS 128u
#define AGE    (250 * NS_PER_MS)

struct block {
	uint64_t gpa, time; /* ns of the request; 0: empty */
	bool there;         /* false: libvirt could not read it */
	uint8_t bytes[BLOCK];
};

struct remote_memory {
	struct domain *domain;
	pthread_mutex_t lock;
	struct block blocks[BLOCKS]; /* indexed by GPA */
};

static int remote_memory_open(struct remote_memory **result, const char *name, const char *uri)
{
	struct remote_memory *memory = calloc(1, sizeof(*memory));
	int error;

	if (!memory)
		return error_set(-ENOMEM, "no memory for a cache of guest memory");
	error = domain_open(&memory->domain, name, uri);
	if (error) {
		free(memory);
		return error;
	}
	pthread_mutex_init(&memory->lock, NULL);
	*result = memory;
	return 0;
}

/* With the lock. NULL: unreadable. */
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

static int remote_memory_read(struct remote_memory *memory, uint64_t gpa, void *to, size_t size)
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

static void remote_memory_close(struct remote_memory *memory)
{
	if (!memory)
		return;
	domain_close(memory->domain);
	pthread_mutex_destroy(&memory->lock);
	free(memory);
}

#define PAGE        4096ull
#define PIECE       (1ull << 20)
#define PIECE_PAGES (PIECE / PAGE)
/* GPAs have at most 52 bits (SDM vol. 3A 4.1.4). */
#define GPA_END (1ull << 52)
/* Documentation/admin-guide/mm/pagemap.rst */
#define PAGE_PRESENT (1ull << 63)
#define PAGE_SWAPPED (1ull << 62)

static int read_process(const struct vmm_memory *memory, uint64_t hva, void *to, size_t size)
{
	ssize_t length;

	if (hva > INT64_MAX)
		return -EFAULT;
	do
		length = pread(memory->memory_fd, to, size, (off_t)hva);
	while (length < 0 && errno == EINTR);
	return length == (ssize_t)size ? 0 : -EFAULT;
}

static const struct vmm_slot *find_slot(const struct vmm_memory *memory, uint64_t gpa)
{
	for (size_t i = 0; i < memory->slot_count; i++)
		if (gpa - memory->slots[i].gpa < memory->slots[i].size)
			return &memory->slots[i];
	return NULL;
}

/* Finds the HVA of GPA. Returns the bytes from there to the end of the slot, at most SIZE; 0:
 * not RAM. */
static size_t locate(struct vmm_memory *memory, uint64_t gpa, size_t size, uint64_t *hva)
{
	const struct vmm_slot *slot;
	size_t part = 0;

	pthread_rwlock_rdlock(&memory->lock);
	slot = find_slot(memory, gpa);
	if (slot) {
		uint64_t offset = gpa - slot->gpa, left = slot->size - offset;

		*hva = slot->hva + offset;
		part = left < size ? (size_t)left : size;
	}
	pthread_rwlock_unlock(&memory->lock);
	return part;
}

static int read_guest(const struct guest_view *view, uint64_t gpa, void *to, size_t size)
{
	struct vmm_memory *memory = view->context;
	uint8_t *bytes = to;

	while (size) {
		uint64_t hva;
		size_t part = locate(memory, gpa, size, &hva);

		if (!part || (memory->remote ? remote_memory_read(memory->remote, gpa, bytes, part)
					     : read_process(memory, hva, bytes, part)))
			return -EFAULT;
		bytes += part;
		gpa += part;
		size -= part;
	}
	return 0;
}

static void init(struct vmm_memory *memory)
{
	*memory = (struct vmm_memory){
		.everything = { .gpa = 0, .size = GPA_END },
		.memory_fd = -1,
		.pagemap_fd = -1,
	};
	pthread_rwlock_init(&memory->lock, NULL);
	memory->view = (struct guest_view){ .regions = &memory->everything,
					    .region_count = 1,
					    .read = read_guest,
					    .context = memory };
}

int vmm_memory_open_remote(struct vmm_memory *memory, const char *name, const char *uri)
{
	int error;

	init(memory);
	memory->view.remote = true;
	error = remote_memory_open(&memory->remote, name, uri);
	if (error)
		vmm_memory_close(memory);
	return error;
}

int vmm_memory_open(struct vmm_memory *memory, const struct vmm_process *process)
{
	init(memory);
	memory->memory_fd = openat(process->directory, "mem", O_RDONLY | O_CLOEXEC);
	memory->pagemap_fd = openat(process->directory, "pagemap", O_RDONLY | O_CLOEXEC);
	if (memory->memory_fd >= 0 && memory->pagemap_fd >= 0)
		return 0;
	vmm_memory_close(memory);
	return error_set(-EACCES,
			 "the memory of process %d cannot be read: run as root, or as its user "
			 "with CAP_SYS_PTRACE",
			 process->pid);
}

void vmm_memory_close(struct vmm_memory *memory)
{
	if (memory->memory_fd >= 0)
		close(memory->memory_fd);
	if (memory->pagemap_fd >= 0)
		close(memory->pagemap_fd);
	memory->memory_fd = memory->pagemap_fd = -1;
	remote_memory_close(memory->remote);
	memory->remote = NULL;
	pthread_rwlock_destroy(&memory->lock);
}

void vmm_memory_set_slots(struct vmm_memory *memory, const struct vmm_slot *slots, size_t count)
{
	assert(count <= VMM_SLOTS_MAX);
	pthread_rwlock_wrlock(&memory->lock);
	for (size_t i = 0; i < count; i++)
		memory->slots[i] = slots[i];
	memory->slot_count = count;
	pthread_rwlock_unlock(&memory->lock);
}

bool vmm_memory_is_known(struct vmm_memory *memory)
{
	bool known;

	pthread_rwlock_rdlock(&memory->lock);
	known = memory->slot_count;
	pthread_rwlock_unlock(&memory->lock);
	return known;
}

struct walk {
	struct vmm_memory *memory;
	bool (*each)(void *context, uint64_t gpa, const uint8_t *bytes, size_t size);
	void *context;
	uint8_t *bytes;                /* PIECE of them */
	uint64_t present[PIECE_PAGES]; /* pagemap entries of a piece */
};

/* Passes the pages from FIRST to END of a piece, which are all present. */
static bool show_pages(struct walk *walk, uint64_t gpa, uint64_t hva, size_t first, size_t end)
{
	size_t size = (end - first) * PAGE;

	if (read_process(walk->memory, hva + first * PAGE, walk->bytes, size))
		return true;
	return walk->each(walk->context, gpa + first * PAGE, walk->bytes, size);
}

static bool walk_piece(struct walk *walk, uint64_t gpa, uint64_t hva, size_t pages)
{
	size_t size = pages * sizeof(walk->present[0]), end;

	if (pread(walk->memory->pagemap_fd, walk->present, size,
		  (off_t)(hva / PAGE * sizeof(walk->present[0]))) != (ssize_t)size)
		return true;
	for (size_t first = 0; first < pages; first = end + 1) {
		end = first;
		while (end < pages && walk->present[end] & (PAGE_PRESENT | PAGE_SWAPPED))
			end++;
		if (end > first && !show_pages(walk, gpa, hva, first, end))
			return false;
	}
	return true;
}

static bool walk_slot(struct walk *walk, const struct vmm_slot *slot)
{
	for (uint64_t offset = 0; offset + PAGE <= slot->size; offset += PIECE) {
		uint64_t left = slot->size - offset;

		if (!walk_piece(walk, slot->gpa + offset, slot->hva + offset,
				(size_t)((left < PIECE ? left : PIECE) / PAGE)))
			return false;
	}
	return true;
}

void vmm_memory_each_page(struct vmm_memory *memory,
			  bool (*each)(void *context, uint64_t gpa, const uint8_t *bytes,
				       size_t size),
			  void *context)
{
	struct walk *walk = calloc(1, sizeof(*walk));
	struct vmm_slot slots[VMM_SLOTS_MAX];
	size_t count;

	if (!walk || memory->remote) {
		free(walk);
		return;
	}
	*walk = (struct walk){
		.memory = memory, .each = each, .context = context, .bytes = malloc(PIECE)
	};
	pthread_rwlock_rdlock(&memory->lock);
	count = memory->slot_count;
	memcpy(slots, memory->slots, count * sizeof(slots[0]));
	pthread_rwlock_unlock(&memory->lock);
	for (size_t i = 0; walk->bytes && i < count; i++)
		if (!walk_slot(walk, &slots[i]))
			break;
	free(walk->bytes);
	free(walk);
}
