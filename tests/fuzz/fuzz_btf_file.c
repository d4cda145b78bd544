/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the file of --btf, an ELF file or plain BTF. fuzz_btf.c reads what is in it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/symbols/btf_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *btf;
	char path[32];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	size_t btf_size;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!btf_file_load(path, &btf, &btf_size)) {
		if (!btf_size || btf_size > size)
			abort();
		free(btf);
	}
	close(fd);
	return 0;
}
