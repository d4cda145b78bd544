/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind tables of user images: one for each image that a stopped vCPU has seen, from the guest's
 * page cache, from the vDSO in its kernel, or from a file of the same build id and layout on the
 * host. Within one boot, images of the same build id and layout share a table. Images that are not
 * in guest memory are tried again at growing intervals. One thread, not a vCPU's; a parser builds
 * the tables (image_parser.h), which takes seconds for a large one.
 */
#ifndef KVMSCOPE_RECORD_USER_TABLES_H
#define KVMSCOPE_RECORD_USER_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/user_image.h"
#include "vmm/record/image_parser.h"

struct user_tables;

/* Bytes of all tables, a limit for what a guest can cause. */
#define USER_TABLES_SIZE_MAX (256ull << 20)

/* SYMFS, a host directory with the guest's files, may be NULL; it and PARSER, which it shares with
 * others but for tables, outlive the object. NULL: no memory. */
struct user_tables *user_tables_new(const char *symfs, struct image_parser *parser);

/* Not before vCPUs have stopped unwinding and no image with a table is used. NULL is a no-op. */
void user_tables_free(struct user_tables *tables);

/* Tries to build the table of one image that is due, and gives it to the image. KERNEL is running;
 * NOW is ns of any steady clock. True: there may be more to do at once. */
bool user_tables_step(struct user_tables *tables, struct user_images *images,
		      const struct guest_kernel *kernel, const struct guest_view *view,
		      uint64_t now);

#endif
