/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind tables of user images: one for each image that a stopped vCPU has seen, from the guest's
 * page cache, from the vDSO in its kernel, or from a file of the same build id and layout on the
 * host. Within one boot, images of the same build id and layout share a table. Images that are not
 * in guest memory are tried again at growing intervals. One thread, not a vCPU's; large tables are
 * built on another thread, one at a time.
 */
#ifndef KVMSCOPE_RECORD_USER_TABLES_H
#define KVMSCOPE_RECORD_USER_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/user_image.h"

struct user_tables;

/* Bytes of all tables, a limit for what a guest can cause. */
#define USER_TABLES_SIZE_MAX (256ull << 20)

/* Bytes of .eh_frame that take some 10 ms; larger ones are built on the other thread. */
#define USER_TABLES_INLINE_MAX (256u << 10)

/* SYMFS, a host directory with the guest's files, may be NULL; it outlives the object. NULL: no
 * memory. */
struct user_tables *user_tables_new(const char *symfs);

/* Not before vCPUs have stopped unwinding and no image with a table is used. Waits for a table that
 * is being built. NULL is a no-op. */
void user_tables_free(struct user_tables *tables);

/* Tries to build the table of one image that is due, and gives it to the image. KERNEL is running;
 * NOW is ns of any steady clock. True: there may be more to do at once. */
bool user_tables_step(struct user_tables *tables, struct user_images *images,
		      const struct guest_kernel *kernel, const struct guest_view *view,
		      uint64_t now);

#endif
