// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/boot_target.h"

/* Detection finds the PVH entry; an image that has one has the 64-bit entry too. */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	target_load(input, size, BOOT_AUTO);
	target_load(input, size, BOOT_ELF64);
	return 0;
}
