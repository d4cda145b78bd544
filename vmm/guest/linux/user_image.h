/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User-space images of the guest: the files that processes have mapped, keyed by what identifies
 * them in guest memory. A vCPU thread that finds a new one enters it here and continues; another
 * thread reads its path, build id and unwind table later, while the guest runs. Images are never
 * removed, so a file that was read once is known at every later stop. USER_IMAGES_MAX bounds the
 * memory that a guest can use.
 *
 *			with find	with read, load
 *	find		safe		safe		vCPU threads: no lock, no allocation,
 *							no system call
 *	read, load	safe		one at a time	not on a vCPU thread
 *	get functions	safe		safe		any thread
 */
#ifndef KVMSCOPE_GUEST_LINUX_USER_IMAGE_H
#define KVMSCOPE_GUEST_LINUX_USER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/elf_source.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/image_identity.h"

#define USER_IMAGES_MAX 65536u

struct cfi_table;
struct guest_kernel;
struct image_identity;
struct user_image;
struct user_images;

/*
 * Identifies a file: addresses of the kernel's structures, which may be reused after the file is
 * closed, and members that differ then. A file that is written to gets a new key by its time.
 */
struct user_image_key {
	uint64_t kind;      /* enum user_image_kind */
	uint64_t mount;     /* GVA of its struct vfsmount; for the vDSO of its struct vdso_image */
	uint64_t dentry;    /* GVA */
	uint64_t parent;    /* GVA of the parent dentry */
	uint64_t name_hash; /* hash_len of its name (include/linux/dcache.h, struct qstr) */
	uint64_t inode;     /* GVA */
	uint64_t number;    /* of the inode */
	uint64_t generation;
	uint64_t seconds; /* i_ctime */
	uint64_t nanoseconds;
};

enum user_image_kind {
	USER_IMAGE_FILE = 1,
	USER_IMAGE_VDSO,
	USER_IMAGE_HEAP, /* these have no file, no build id and no content to read */
	USER_IMAGE_STACK,
	USER_IMAGE_ANONYMOUS,
	USER_IMAGE_SPECIAL, /* the kernel's own, except the vDSO: [vvar], [uprobes] */
};

int user_images_create(struct user_images **images); /* 0 or -ENOMEM */
/* Returns IMAGES with one more reference; each owner frees it. NULL is allowed. Any thread. */
struct user_images *user_images_share(struct user_images *images);
/* True if there are other references. */
bool user_images_shared(const struct user_images *images);
/* Releases a reference. NULL is a no-op. Any thread. */
void user_images_free(struct user_images *images);

/*
 * The image with KEY, which is entered if it is new. NULL: the table is full, or another thread is
 * entering an image.
 */
struct user_image *user_images_find(struct user_images *images, const struct user_image_key *key);

/* Reads the identity of the image FILE, as image_identity_read(), which is the default. */
typedef void image_identify(void *context, const struct elf_source *file,
			    struct image_identity *identity);

/* Sets what user_images_load() calls. On the thread that loads. */
void user_images_identify(struct user_images *images, image_identify *identify, void *context);

/*
 * Loads name, build id and device of images that were entered since the last call. One whose file
 * was closed in the meantime stays without a name.
 */
void user_images_load(struct user_images *images, const struct guest_kernel *kernel,
		      const struct guest_view *view);

/* The loaded image at INDEX; NULL: fewer are loaded. On the thread that loads. */
struct user_image *user_images_loaded(const struct user_images *images, uint32_t index);
/* A number that no other table of this process has. */
uint32_t user_images_generation(const struct user_images *images);
/* The image with NUMBER; NULL: none. */
struct user_image *user_images_at(struct user_images *images, uint32_t number);

/* Unique in one table, below USER_IMAGES_MAX. */
uint32_t user_image_number(const struct user_image *image);
enum user_image_kind user_image_kind(const struct user_image *image);
/*
 * The path from the root of its mount namespace, or "[vdso]", "[heap]", "//anon". NULL: not known
 * (yet). Unmodified bytes of the guest.
 */
const char *user_image_name(const struct user_image *image);
/* The size of the build id in bytes; 0: not known (yet). */
size_t user_image_build_id(const struct user_image *image, const uint8_t **build_id);
/* Build id and layout at the time when its name was read; NULL: not known (yet). */
const struct image_identity *user_image_identity(const struct user_image *image);
/* The file's device (major << 20 | minor, as in the kernel) and inode; 0 for none. */
void user_image_file(const struct user_image *image, uint32_t *device, uint64_t *inode,
		     uint64_t *generation);

/*
 * Reads SIZE bytes at file OFFSET from the guest's page cache. -EFAULT: not all of them are in
 * guest memory (now), or the file was closed. Not on a vCPU thread.
 */
int user_image_read(const struct user_image *image, const struct guest_kernel *kernel,
		    const struct guest_view *view, uint64_t offset, void *to, size_t size);

/* Its unwind table by file offset; NULL: not known (yet), or none. */
const struct cfi_table *user_image_cfi(const struct user_image *image);
/*
 * Sets the unwind table once; TABLE must outlive IMAGE. NULL: it is not available now. Not on a
 * vCPU thread.
 */
void user_image_set_cfi(struct user_image *image, const struct cfi_table *table);
/* True if IMAGE may have a table and user_image_set_cfi() was not called yet. */
bool user_image_cfi_pending(const struct user_image *image);

#endif
