/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the unwind tables of the guest's user images: of each that a stopped
 * vCPU came across, once, from the guest's page cache or the vDSO in its kernel, or
 * else from a file of the same build id and layout on the host. Images of one build id and layout
 * share a table, within one boot of the guest. What is not in guest memory at first is looked for
 * again, ever more rarely. One thread, no vCPU's; large tables are made on one of their own, one at
 * a time.
 */
#ifndef KVMSCOPE_RECORD_USER_TABLES_H
#define KVMSCOPE_RECORD_USER_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/user_image.h"

struct user_tables;

/* More than this stays without tables: a guest can have as many images as it likes. */
#define USER_TABLES_SIZE_MAX (256ull << 20)

/* Bytes of .eh_frame that take some 10 ms. Larger ones are made beside the caller. */
#define USER_TABLES_INLINE_MAX (256u << 10)

/* SYMFS, the host's directory of the guest's files, may be NULL; it must outlive the tables. NULL:
 * no memory.
 */
struct user_tables *user_tables_new(const char *symfs);

/*
 * No vCPU may unwind any more, nor any image that was given a table be looked at. Waits for a large
 * table that is being made. NULL is a no-op.
 */
void user_tables_free(struct user_tables *tables);

/*
 * Tries to make the table of one image of IMAGES, if there is one whose time
 * has come, and gives it to the image. KERNEL is the one that runs; NOW is ns of any steady clock.
 * True: there may be more to do at once.
 */
bool user_tables_turn(struct user_tables *tables, struct user_images *images,
		      const struct guest_kernel *kernel, const struct guest_view *view,
		      uint64_t now);

#endif
