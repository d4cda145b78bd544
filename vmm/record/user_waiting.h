/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's files of which something is wanted that is not all in its memory at first: each is
 * looked at again, ever more rarely. One thread, no vCPU's.
 */
#ifndef KVMSCOPE_RECORD_USER_WAITING_H
#define KVMSCOPE_RECORD_USER_WAITING_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/user_image.h"

struct waiting_image;

/* Zeroed: none. */
struct user_waiting {
	uint32_t generation; /* of the images that what follows is of; 0: of none */
	uint32_t seen;       /* so many of them were looked at */
	struct waiting_image *images;
	size_t count;
	size_t due;     /* the one that user_waiting_next() told */
	uint64_t delay; /* ns that one has to be known for before it is looked at; the owner's to
			   set */
};

/*
 * A file of IMAGES that was settled, whose time has come; NULL: none has. NOW is ns of any steady
 * clock. Images of another boot take the place of all that waited. Without memory, new ones are
 * passed over.
 */
struct user_image *user_waiting_next(struct user_waiting *waiting, struct user_images *images,
				     uint64_t now);

/* That one is to be looked at again; */
void user_waiting_again(struct user_waiting *waiting, uint64_t now);
/* or never. */
void user_waiting_done(struct user_waiting *waiting);

/* All that wait are due now, whatever the delay was: it is the last time. */
void user_waiting_hurry(struct user_waiting *waiting);

/* Frees what it holds; zeroed, it holds nothing. */
void user_waiting_free(struct user_waiting *waiting);

#endif
