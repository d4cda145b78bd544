/* SPDX-License-Identifier: Apache-2.0 */
/* Input: an archive of symbols, not compressed, of the recording "x". Nothing may appear outside of
 * the directory that it is unpacked into. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/symbols/symbol_archive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

static void make_file(char path[32], int *fd, const void *data, size_t size)
{
	*fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (*fd < 0 || write(*fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, 32, "/proc/self/fd/%d", *fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char archive[32], recording[32], parent[] = "/tmp/kvmscope-fuzz-XXXXXX", directory[64];
	int archive_fd, recording_fd;

	make_file(archive, &archive_fd, data, size);
	make_file(recording, &recording_fd, "x", 1);
	if (!mkdtemp(parent))
		abort();
	snprintf(directory, sizeof(directory), "%s/in", parent);
	if (mkdir(directory, 0700))
		abort();
	symbol_archive_unpack(archive, recording, directory);
	nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (rmdir(parent)) /* something else is in it */
		abort();
	close(archive_fd);
	close(recording_fd);
	return 0;
}
