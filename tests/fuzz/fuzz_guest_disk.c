/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the list of a disk's file systems, as a compromised grub-fstest might print it. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vmm/disk/guest_disk.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct guest_disk_volumes volumes;

	guest_disk_volumes_read(&volumes, (const char *)input, size);
	assert(volumes.count <= GUEST_DISK_VOLUMES_MAX);
	for (unsigned int i = 0; i < volumes.count; i++)
		assert(strlen(volumes.names[i]) && !strpbrk(volumes.names[i], "() \n:"));
	return 0;
}
