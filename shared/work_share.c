// SPDX-License-Identifier: Apache-2.0
#include "shared/work_share.h"

static uint64_t done_at(const struct work_share *share, uint64_t now)
{
	uint64_t allowed = now > share->time ? (now - share->time) / WORK_SHARE : 0;

	return share->done > allowed ? share->done - allowed : 0;
}

bool work_share_allows(const struct work_share *share, uint64_t now)
{
	return done_at(share, now) <= WORK_START + share->more;
}

void work_share_begin_anew(struct work_share *share)
{
	share->more = share->done < WORK_AHEAD - WORK_START ? share->done : WORK_AHEAD - WORK_START;
}

void work_share_add(struct work_share *share, uint64_t now, uint64_t work)
{
	share->done = done_at(share, now) + work;
	share->time = now;
}

uint64_t work_share_of(uint64_t lasted, uint64_t processed)
{
	return lasted / WORK_SHARE > processed ? lasted / WORK_SHARE : processed;
}
