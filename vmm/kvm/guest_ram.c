/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/guest_ram.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "shared/error.h"

#define MEMORY_SIZE_MIN (1ull << 20)
#define PAGE_MASK       0xfffull
#define HUGE_PAGE_SIZE  (2ull << 20)

static void add_region(struct memory *memory, uint64_t gpa, uint64_t size, uint8_t *hva)
{
	memory->regions[memory->region_count++] =
		(struct memory_region){ .gpa = gpa, .size = size, .hva = hva };
}

/*
 * Maps SIZE bytes at a multiple of 2 MiB. KVM uses huge pages only where host and guest addresses
 * are aligned alike (kvm_alloc_memslot_metadata() in arch/x86/kvm/x86.c); with them the guest
 * causes one first-touch exit for 512 pages. MAP_NORESERVE: untouched pages cost nothing.
 */
static uint8_t *map_aligned(uint64_t size)
{
	uint64_t mapped = size + HUGE_PAGE_SIZE, before;
	uint8_t *mapping;

	if (mapped < size) {
		errno = ENOMEM;
		return NULL;
	}
	mapping = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapping == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)mapping & (HUGE_PAGE_SIZE - 1);
	if (before)
		munmap(mapping, before);
	munmap(mapping + before + size, HUGE_PAGE_SIZE - before);
	return mapping + before;
}

int memory_create(struct memory *memory, uint64_t size)
{
	uint64_t low = size < MEMORY_LOW_END ? size : MEMORY_LOW_END;
	uint8_t *mapping;

	*memory = (struct memory){ 0 };
	if (size < MEMORY_SIZE_MIN || (size & PAGE_MASK) || size > SIZE_MAX)
		return error_set(
			-EINVAL,
			"guest memory of %llu bytes: it must be a multiple of 4 KiB and at least 1 MiB",
			(unsigned long long)size);
	mapping = map_aligned(size);
	if (!mapping)
		return error_set(-ENOMEM,
				 "cannot map %llu MiB of guest memory: %s; choose a smaller --mem",
				 (unsigned long long)size >> 20, strerror(errno));
	/* Without it, fork() would make all RAM copy-on-write under the running guest. */
	madvise(mapping, size, MADV_DONTFORK);
	madvise(mapping, size, MADV_HUGEPAGE);
	memory->mapping = mapping;
	memory->size = size;
	add_region(memory, 0, low, memory->mapping);
	if (size > low)
		add_region(memory, MEMORY_HIGH_START, size - low, memory->mapping + low);
	return 0;
}

void memory_destroy(struct memory *memory)
{
	if (memory->mapping)
		munmap(memory->mapping, memory->size);
	*memory = (struct memory){ 0 };
}

void memory_clear(struct memory *memory)
{
	patches_clear(&memory->patches);
	/* A private anonymous mapping reads as zeroes after this (madvise(2)). */
	if (madvise(memory->mapping, memory->size, MADV_DONTNEED))
		memset(memory->mapping, 0, memory->size);
}

void *memory_pointer(const struct memory *memory, uint64_t gpa, uint64_t size)
{
	for (size_t i = 0; i < memory->region_count; i++) {
		const struct memory_region *region = &memory->regions[i];

		if (gpa >= region->gpa && gpa - region->gpa <= region->size &&
		    size <= region->size - (gpa - region->gpa))
			return region->hva + (gpa - region->gpa);
	}
	return NULL;
}

int memory_write(const struct memory *memory, uint64_t gpa, const void *from, uint64_t size)
{
	void *to = memory_pointer(memory, gpa, size);

	if (!to)
		return -EFAULT;
	memcpy(to, from, size);
	return 0;
}

int memory_read(const struct memory *memory, uint64_t gpa, void *to, uint64_t size)
{
	const void *from = memory_pointer(memory, gpa, size);

	if (!from)
		return -EFAULT;
	memcpy(to, from, size);
	return 0;
}

/* Reads the byte at GPA and the next one; the byte after the end of RAM reads as 0. */
static int read_patch(const struct memory *memory, uint64_t gpa, uint8_t bytes[2])
{
	bytes[1] = 0;
	return memory_read(memory, gpa, bytes, 2) ? memory_read(memory, gpa, bytes, 1) : 0;
}

int memory_patch(struct memory *memory, uint64_t gpa, uint8_t own)
{
	uint8_t *byte = memory_pointer(memory, gpa, 1), bytes[2];
	int error = read_patch(memory, gpa, bytes);

	if (!error)
		error = patches_add(&memory->patches, gpa, own, bytes[1]);
	if (!error)
		__atomic_store_n(byte, PATCHES_INT3, __ATOMIC_SEQ_CST);
	return error;
}

bool memory_is_patched(const struct memory *memory, uint64_t gpa)
{
	uint8_t bytes[2];

	return !read_patch(memory, gpa, bytes) && patches_has(&memory->patches, gpa, bytes);
}
