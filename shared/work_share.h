/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is tried again and again, as nobody tells when it is worth it, takes no more than a part of
 * a processor: what was done is allowed for by the time that goes by. At the start there is a
 * second of it, and where it begins anew a second more, as long as no more than some seconds are
 * ahead of their time: what begins anew again and again has its part over time, too.
 *
 * Zeroed: nothing was done yet. Times are ns of one clock. One thread at a time.
 */
#ifndef KVMSCOPE_SHARED_WORK_SHARE_H
#define KVMSCOPE_SHARED_WORK_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define WORK_SHARE 20
#define WORK_START 1000000000ull
#define WORK_AHEAD (8 * WORK_START) /* with all beginnings */

struct work_share {
	uint64_t done; /* ns of a processor that are not allowed for yet */
	uint64_t time; /* when that was so */
	uint64_t more; /* ns that may be done besides WORK_START */
};

/* May more be done at NOW? */
bool work_share_allows(const struct work_share *share, uint64_t now);

/* There is a new reason to try. */
void work_share_begin_anew(struct work_share *share);

/* WORK ns of a processor were used, up to NOW. */
void work_share_add(struct work_share *share, uint64_t now, uint64_t work);

/*
 * What took LASTED ns, and PROCESSED ns of our own CPU time. Much longer than that is what others
 * did for it: the disk with what was swapped out.
 */
uint64_t work_share_of(uint64_t lasted, uint64_t processed);

#endif
