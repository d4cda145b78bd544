// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/file_birth.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

bool file_birth(int fd, uint64_t *time)
{
	struct statx status = { 0 };

	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BTIME, &status) ||
	    !(status.stx_mask & STATX_BTIME))
		return false;
	*time = (uint64_t)status.stx_btime.tv_sec * 1000000000u + status.stx_btime.tv_nsec;
	return true;
}
