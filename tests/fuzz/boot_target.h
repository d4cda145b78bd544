/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the fuzz targets of the loaders: loads INPUT as a kernel file by PROTOCOL. The RAM is
 * reused.
 */
#ifndef KVMSCOPE_TESTS_FUZZ_BOOT_TARGET_H
#define KVMSCOPE_TESTS_FUZZ_BOOT_TARGET_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/boot/kernel_boot.h"

#define TARGET_RAM (32u << 20)

/* A memfd that holds the input, created once. */
static inline int target_file(const uint8_t *input, size_t size)
{
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("kernel", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, input, size, 0) != (ssize_t)size)
		abort();
	return fd;
}

static inline void target_load(const uint8_t *input, size_t size, enum boot_protocol protocol)
{
	static struct memory memory;
	char path[32];
	struct boot_options options = {
		.protocol = protocol, .kernel = path, .append = "quiet", .cpus = 1
	};
	struct boot_start start;

	if (!memory.mapping && memory_create(&memory, TARGET_RAM))
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", target_file(input, size));
	boot_load(&options, &memory, &start);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

#endif
