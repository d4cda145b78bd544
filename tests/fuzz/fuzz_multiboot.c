/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/boot_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	target_load(input, size, BOOT_MULTIBOOT);
	return 0;
}
