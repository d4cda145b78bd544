/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/boot_target.h"

/* An image in which detection finds the PVH entry also has the 64-bit entry. */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	target_load(input, size, BOOT_AUTO);
	target_load(input, size, BOOT_ELF64);
	return 0;
}
