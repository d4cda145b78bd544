/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest whose memory has a hand-guest address space: its tree of VMAs in either form, files with
 * dentries and mounts, and a page cache. The direct map at USER_GUEST_DIRECT covers all memory. For
 * tests.
 */
#ifndef KVMSCOPE_TESTS_UNIT_USER_GUEST_H
#define KVMSCOPE_TESTS_UNIT_USER_GUEST_H

#include "tests/unit/flat_guest.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/user_map.h"
#include "vmm/record/image_parser.h"

#define USER_GUEST_DIRECT 0xffff888000000000ull
#define USER_GUEST_VMAS   512

struct user_guest {
	struct flat_guest guest;
	struct guest_kernel kernel;     /* its paging, VMA layout and images are known */
	uint64_t next;                  /* GPA of free memory */
	uint64_t mm;                    /* GVA, like all addresses below */
	uint64_t root_mount, root;      /* the vfsmount and dentry of "/" */
	uint64_t vmas[USER_GUEST_VMAS]; /* in order of address */
	unsigned int vma_count;
	struct user_map map;
};

/* Memory of a kernel whose VMA trees are maple trees or red-black trees. */
void user_guest_make(struct user_guest *guest, bool is_maple);
void user_guest_free(struct user_guest *guest);

void user_guest_put(struct user_guest *guest, uint64_t gva, uint64_t value);
uint64_t user_guest_get(struct user_guest *guest, uint64_t gva);
uint64_t user_guest_allocate(struct user_guest *guest, uint64_t size, uint64_t alignment);

/* A dentry NAME below PARENT; 0: it is its own parent. */
uint64_t user_guest_dentry(struct user_guest *guest, uint64_t parent, const char *name);

/*
 * Mounts a file system at POINT below the vfsmount PARENT. Returns its vfsmount; the dentry of its
 * root is *ROOT.
 */
uint64_t user_guest_mount(struct user_guest *guest, uint64_t parent, uint64_t point,
			  uint64_t *root);

/* An open file of a new inode NUMBER. */
uint64_t user_guest_file(struct user_guest *guest, uint64_t mount, uint64_t dentry,
			 uint64_t number);
/*
 * FILE is the backing file of the one with this path, like the upper or lower file of an overlay.
 */
void user_guest_back(struct user_guest *guest, uint64_t file, uint64_t mount, uint64_t dentry);
uint64_t user_guest_inode(struct user_guest *guest, uint64_t file);

/*
 * COUNT pages of a file's content, in a folio that begins at page FIRST of it. Returns the GPA of
 * the memory.
 */
uint64_t user_guest_cache(struct user_guest *guest, uint64_t file, uint64_t first,
			  unsigned int count);

/* Appends a VMA after all others; FILE 0: none. user_guest_build() builds the tree. */
uint64_t user_guest_map(struct user_guest *guest, uint64_t start, uint64_t end, uint64_t page,
			uint64_t flags, uint64_t file);
void user_guest_build(struct user_guest *guest);

/* A parser of images in threads, for all tests; never ended. */
struct image_parser *user_guest_parser(void);

/* Looks up ADDRESS, as from a new stop each time. */
const struct user_mapping *user_guest_lookup(struct user_guest *guest, uint64_t address);

#endif
