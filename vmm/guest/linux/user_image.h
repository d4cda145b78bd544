/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of the guest's user space: the files that processes have mapped, by
 * what identifies them in the guest's memory. A vCPU thread that finds one
 * mapped for the first time enters it here and goes on; its path, build id and
 * unwind table are read later, by another thread, while the guest runs. No
 * image is ever removed: a file that was looked at once is known at every stop
 * from then on. USER_IMAGES_MAX bounds what a guest can fill.
 *
 *			with find	read, settle
 *	find		safe		safe		vCPU threads: no lock, allocation or system
 *call read, settle	safe		one at a time	no vCPU thread
 *	get functions	safe		safe		any thread
 */
#ifndef KVMSCOPE_GUEST_LINUX_USER_IMAGE_H
#define KVMSCOPE_GUEST_LINUX_USER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_view.h"

#define USER_IMAGES_MAX         65536u
#define USER_IMAGE_BUILD_ID_MAX 20

struct cfi_table;
struct guest_kernel;
struct image_identity;
struct user_image;
struct user_images;

/*
 * What a file is told by: addresses of the kernel's structures, which may be used for another one
 * when the file is gone, and what differs between the two then. A file that is written to becomes
 * another one by its time.
 */
struct user_image_key {
	uint64_t kind;   /* enum user_image_kind */
	uint64_t mount;  /* GVA of its struct vfsmount; of the vDSO of its struct vdso_image */
	uint64_t dentry; /* GVA, and that of its parent; */
	uint64_t parent;
	uint64_t name_hash; /* hash_len of its name (include/linux/dcache.h, struct qstr) */
	uint64_t inode;     /* GVA; */
	uint64_t number;    /* and its number, */
	uint64_t generation;
	uint64_t seconds; /* and i_ctime */
	uint64_t nanoseconds;
};

enum user_image_kind {
	USER_IMAGE_FILE = 1,
	USER_IMAGE_VDSO,
	USER_IMAGE_HEAP, /* these have no file, no build id and nothing to be read */
	USER_IMAGE_STACK,
	USER_IMAGE_ANONYMOUS,
	USER_IMAGE_SPECIAL, /* of the kernel, and not the vDSO: [vvar], [uprobes] */
};

int user_images_create(struct user_images **images); /* 0 or -ENOMEM */
/* IMAGES itself, for one more owner; each is to free it. NULL works with both. Any thread. */
struct user_images *user_images_share(struct user_images *images);
/* Has it owners other than the one who asks? */
bool user_images_shared(const struct user_images *images);
/* NULL is a no-op; the last owner's call frees it. Any thread. */
void user_images_free(struct user_images *images);

/* The image of KEY, entered if it is new. NULL: there is no room, or it is being entered at this
 * moment. */
struct user_image *user_images_find(struct user_images *images, const struct user_image_key *key);

/*
 * Reads what is to be known of images that were entered since the last call. One whose file is gone
 * meanwhile stays without a name.
 */
void user_images_load(struct user_images *images, const struct guest_kernel *kernel,
		      const struct guest_view *view);

/* The INDEXth image that was settled; NULL: so many were not. On the thread that settles. */
struct user_image *user_images_loaded(const struct user_images *images, uint32_t index);

/* Tells this table from any other that there was. */
uint32_t user_images_generation(const struct user_images *images);

/* By its number; NULL: none that is known has it. */
struct user_image *user_images_at(struct user_images *images, uint32_t number);

/* Below USER_IMAGES_MAX; of one table of images. */
uint32_t user_image_number(const struct user_image *image);
enum user_image_kind user_image_kind(const struct user_image *image);

/*
 * As the guest sees it from its mount namespace's root: a path, "[vdso]", "[heap]", "//anon". NULL:
 * it is not known (yet). Guest's bytes, not cleaned.
 */
const char *user_image_name(const struct user_image *image);

/* The build id, with its size in bytes; 0: none is known (yet). */
size_t user_image_build_id(const struct user_image *image, const uint8_t **build_id);

/* The same with the layout of its parts, as of when its name came to be known; NULL: it is not
 * (yet). */
const struct image_identity *user_image_identity(const struct user_image *image);

/* Of the file's device (major << 20 | minor, as the kernel has it) and inode; 0 where there is
 * none. */
void user_image_file(const struct user_image *image, uint32_t *device, uint64_t *inode,
		     uint64_t *generation);

/*
 * Bytes of the image's file, OFFSET being in it, out of the guest's page cache. -EFAULT: not all of
 * them are in the guest's memory (now), or the file is gone. No vCPU thread.
 */
int user_image_read(const struct user_image *image, const struct guest_kernel *kernel,
		    const struct guest_view *view, uint64_t offset, void *to, size_t size);

/* What its .eh_frame says, by file offset; NULL: not known (yet), or it has none. */
const struct cfi_table *user_image_cfi(const struct user_image *image);

/* Gives IMAGE its table, which must outlive it, once; before that NULL: none is to be had now. Not
 * on a vCPU thread. */
void user_image_set_cfi(struct user_image *image, const struct cfi_table *table);

/* Has nobody tried yet to make the table that IMAGE may have? How its frames are left is not known
 * then. */
bool user_image_cfi_pending(const struct user_image *image);

#endif
