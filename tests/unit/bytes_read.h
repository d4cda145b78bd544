/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what a test reads, to show that work is bounded. */
#ifndef KVMSCOPE_TESTS_UNIT_BYTES_READ_H
#define KVMSCOPE_TESTS_UNIT_BYTES_READ_H

#include <stdint.h>
#include <stdio.h>

/* The bytes that this thread has read from files; 0: the kernel does not count them. */
static inline uint64_t bytes_read(void)
{
	unsigned long long bytes = 0;
	FILE *file = fopen("/proc/thread-self/io", "re");

	if (!file)
		return 0;
	if (fscanf(file, "rchar: %llu", &bytes) != 1)
		bytes = 0;
	fclose(file);
	return bytes;
}

#endif
