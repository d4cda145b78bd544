/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is inlined at an image's addresses: finds the file with the DWARF of its build, where its
 * symbols are looked for, and translates the addresses. The image's own or a separate file; of
 * another build none is taken. Of modules nothing is known. One thread at a time.
 */
#ifndef KVMSCOPE_REPORT_IMAGE_INLINES_H
#define KVMSCOPE_REPORT_IMAGE_INLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/report/profile_image.h"
#include "vmm/symbols/dwarf_inlines.h"

/*
 * The functions that the code at OWN is of (the address as profile_image_symbol() gives it), as
 * dwarf_inlines_find() does. 0: nothing says. Looks for the file when it is asked first.
 */
size_t image_inlines_find(struct profile_image *image, const struct profile_options *options,
			  uint64_t own, struct dwarf_function *functions);

/* Was a file with DWARF found? */
bool image_inlines_found(const struct image_inlines *inlines);

void image_inlines_free(struct image_inlines *inlines); /* NULL is a no-op */

#endif
