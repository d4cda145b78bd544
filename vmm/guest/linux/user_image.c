/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/user_image.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "shared/hash.h"
#include "vmm/guest/image_identity.h"
#include "vmm/guest/linux/guest_file.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/vma.h"

#define PROBES    32
#define NAMES_MAX (32ull << 20) /* bytes; bounds the memory for a guest's names */

/* The thread that changed the state of an entry to STATE_ENTERING writes it. */
enum state { STATE_FREE, STATE_ENTERING, STATE_ENTERED };

struct user_image {
	_Atomic uint32_t state; /* enum state */
	uint32_t number;
	struct user_image_key key;
	_Atomic(char *) name; /* owned; written after the next two */
	uint32_t device;
	struct image_identity identity;
	_Atomic(const struct cfi_table *) cfi;
	_Atomic bool cfi_tried; /* written after cfi */
};

struct user_images {
	_Atomic uint32_t owners;
	uint32_t generation;
	image_identify *identify; /* with its context; of the thread that loads */
	void *identify_context;
	_Atomic uint32_t count; /* of images that are entered, or being entered */
	uint32_t loaded;        /* the first of them */
	uint64_t names;         /* bytes of names */
	/* In order; NULL: being entered. */
	_Atomic(struct user_image *) entered[USER_IMAGES_MAX];
	struct user_image images[USER_IMAGES_MAX];
};

int user_images_create(struct user_images **result)
{
	static _Atomic uint32_t generations;
	struct user_images *images = calloc(1, sizeof(*images));

	if (!images)
		return -ENOMEM;
	images->owners = 1;
	images->generation = atomic_fetch_add(&generations, 1) + 1;
	*result = images;
	return 0;
}

static bool has_file(const struct user_image *image)
{
	return image->key.kind == USER_IMAGE_FILE;
}

struct user_images *user_images_share(struct user_images *images)
{
	if (images)
		atomic_fetch_add(&images->owners, 1);
	return images;
}

bool user_images_shared(const struct user_images *images)
{
	return atomic_load(&images->owners) > 1;
}

void user_images_free(struct user_images *images)
{
	if (!images || atomic_fetch_sub(&images->owners, 1) > 1)
		return;
	for (uint32_t i = 0; i < images->count; i++)
		free(atomic_load(&images->entered[i]->name));
	free(images);
}

uint32_t user_images_generation(const struct user_images *images)
{
	return images->generation;
}

/* By words, mixed at the end, as most keys differ in few bits of some addresses. */
static uint32_t hash(const struct user_image_key *key)
{
	const uint64_t words[] = { key->kind,   key->mount,   key->dentry,     key->inode,
				   key->number, key->seconds, key->nanoseconds };
	uint64_t sum = HASH_START;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		sum = hash_add(sum, words[i]);
	return (uint32_t)(sum ^ sum >> 32);
}

/* IMAGE is in STATE_ENTERING. The list has room, as each image is entered once. */
static struct user_image *enter(struct user_images *images, struct user_image *image,
				const struct user_image_key *key)
{
	image->key = *key;
	image->number = (uint32_t)(image - images->images);
	atomic_store_explicit(&image->state, STATE_ENTERED, memory_order_release);
	atomic_store_explicit(&images->entered[atomic_fetch_add(&images->count, 1)], image,
			      memory_order_release);
	return image;
}

struct user_image *user_images_find(struct user_images *images, const struct user_image_key *key)
{
	uint32_t start = hash(key);

	for (uint32_t i = 0; i < PROBES; i++) {
		struct user_image *image = &images->images[(start + i) % USER_IMAGES_MAX];
		uint32_t state = atomic_load_explicit(&image->state, memory_order_acquire);

		if (state == STATE_FREE &&
		    atomic_compare_exchange_strong(&image->state, &state, STATE_ENTERING))
			return enter(images, image, key);
		if (state == STATE_ENTERING)
			return NULL; /* it may be this one */
		if (!memcmp(&image->key, key, sizeof(*key)))
			return image;
	}
	return NULL;
}

static bool read_bytes(struct kernel_memory *memory, const struct guest_vma_layout *layout,
		       const struct user_image *image, uint64_t offset, void *to, size_t size)
{
	uint64_t data, length;

	if (has_file(image))
		return guest_file_read(memory, layout, image->key.inode, offset, to, size);
	return image->key.kind == USER_IMAGE_VDSO &&
	       kernel_memory_read_u64(memory, image->key.mount + layout->vdso_data, &data) &&
	       kernel_memory_read_u64(memory, image->key.mount + layout->vdso_size, &length) &&
	       offset <= length && size <= length - offset &&
	       kernel_memory_read(memory, data + offset, to, size);
}

int user_image_read(const struct user_image *image, const struct guest_kernel *kernel,
		    const struct guest_view *view, uint64_t offset, void *to, size_t size)
{
	struct kernel_memory memory = { .view = view, .paging = &kernel->paging };

	if (!read_bytes(&memory, &kernel->vmas, image, offset, to, size) ||
	    (has_file(image) && !guest_vma_is_same_file(&memory, &kernel->vmas, &image->key)))
		return -EFAULT;
	return 0;
}

/* Context of read_source(). */
struct source {
	struct kernel_memory *memory;
	const struct guest_vma_layout *layout;
	const struct user_image *image;
};

static int read_source(void *context, uint64_t offset, void *to, size_t size)
{
	const struct source *source = context;

	return read_bytes(source->memory, source->layout, source->image, offset, to, size)
		       ? 0
		       : -EFAULT;
}

static void read_identity(const struct user_images *images, struct user_image *image,
			  struct kernel_memory *memory, const struct guest_vma_layout *layout)
{
	struct source source = { .memory = memory, .layout = layout, .image = image };
	const struct elf_source file = { .read = read_source, .context = &source };

	if (images->identify)
		images->identify(images->identify_context, &file, &image->identity);
	else
		image_identity_read(&image->identity, &file);
}

static void read_device(struct user_image *image, struct kernel_memory *memory,
			const struct guest_vma_layout *layout)
{
	uint64_t super;

	if (!kernel_memory_read_u64(memory, image->key.inode + layout->inode_super, &super) ||
	    !kernel_memory_read(memory, super + layout->super_device, &image->device,
				sizeof(image->device)))
		image->device = 0;
}

/* NULL: it was closed, or there is no room for its name. */
static char *read_file(struct user_images *images, struct user_image *image,
		       struct kernel_memory *memory, const struct guest_vma_layout *layout)
{
	char path[PATH_TAIL_MAX], *name;

	if (!guest_vma_is_same_file(memory, layout, &image->key) ||
	    guest_file_path(memory, layout, image->key.mount, image->key.dentry, path) ||
	    images->names + strlen(path) + 1 > NAMES_MAX)
		return NULL;
	read_identity(images, image, memory, layout);
	read_device(image, memory, layout);
	if (!guest_vma_is_same_file(memory, layout, &image->key))
		return NULL;
	name = strdup(path);
	images->names += name ? strlen(path) + 1 : 0;
	return name;
}

static char *read_name(struct user_images *images, struct user_image *image,
		       struct kernel_memory *memory, const struct guest_vma_layout *layout)
{
	switch (image->key.kind) {
	case USER_IMAGE_FILE:
		return read_file(images, image, memory, layout);
	case USER_IMAGE_VDSO:
		read_identity(images, image, memory, layout);
		return strdup("[vdso]");
	case USER_IMAGE_HEAP:
		return strdup("[heap]");
	case USER_IMAGE_STACK:
		return strdup("[stack]");
	case USER_IMAGE_ANONYMOUS:
		return strdup("//anon");
	default:
		return NULL;
	}
}

void user_images_identify(struct user_images *images, image_identify *identify, void *context)
{
	images->identify = identify;
	images->identify_context = context;
}

void user_images_load(struct user_images *images, const struct guest_kernel *kernel,
		      const struct guest_view *view)
{
	struct kernel_memory memory = { .view = view, .paging = &kernel->paging };
	uint32_t count = atomic_load_explicit(&images->count, memory_order_acquire);

	while (images->loaded < count) {
		struct user_image *image = atomic_load_explicit(&images->entered[images->loaded],
								memory_order_acquire);

		if (!image)
			return; /* being entered */
		atomic_store_explicit(&image->name,
				      read_name(images, image, &memory, &kernel->vmas),
				      memory_order_release);
		images->loaded++;
	}
}

struct user_image *user_images_loaded(const struct user_images *images, uint32_t index)
{
	return index < images->loaded
		       ? atomic_load_explicit(&images->entered[index], memory_order_relaxed)
		       : NULL;
}

struct user_image *user_images_at(struct user_images *images, uint32_t number)
{
	struct user_image *image = number < USER_IMAGES_MAX ? &images->images[number] : NULL;

	return image && atomic_load_explicit(&image->state, memory_order_acquire) == STATE_ENTERED
		       ? image
		       : NULL;
}

uint32_t user_image_number(const struct user_image *image)
{
	return image->number;
}

enum user_image_kind user_image_kind(const struct user_image *image)
{
	return (enum user_image_kind)image->key.kind;
}

const char *user_image_name(const struct user_image *image)
{
	return atomic_load_explicit(&image->name, memory_order_acquire);
}

size_t user_image_build_id(const struct user_image *image, const uint8_t **build_id)
{
	*build_id = image->identity.build_id;
	return user_image_name(image) ? image->identity.build_id_size : 0;
}

const struct image_identity *user_image_identity(const struct user_image *image)
{
	return user_image_name(image) ? &image->identity : NULL;
}

void user_image_file(const struct user_image *image, uint32_t *device, uint64_t *inode,
		     uint64_t *generation)
{
	bool known = has_file(image) && user_image_name(image);

	*device = known ? image->device : 0;
	*inode = known ? image->key.number : 0;
	*generation = known ? image->key.generation : 0;
}

const struct cfi_table *user_image_cfi(const struct user_image *image)
{
	return atomic_load_explicit(&image->cfi, memory_order_acquire);
}

void user_image_set_cfi(struct user_image *image, const struct cfi_table *table)
{
	atomic_store_explicit(&image->cfi, table, memory_order_release);
	atomic_store_explicit(&image->cfi_tried, true, memory_order_release);
}

bool user_image_cfi_pending(const struct user_image *image)
{
	return (has_file(image) || image->key.kind == USER_IMAGE_VDSO) &&
	       !atomic_load_explicit(&image->cfi_tried, memory_order_acquire);
}
