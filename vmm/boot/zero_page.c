/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/zero_page.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "shared/error.h"
#include "vmm/boot/address_map.h"
#include "vmm/boot/e820.h"

/* "Undefined" loader, boot.rst's table of type_of_loader: without a type the kernel ignores the
 * initrd. */
#define LOADER_UNDEFINED  0xff
#define VIDEO_MODE_NORMAL 0xffff

#define SEED_SIZE 32

/* struct setup_data, whose data[] has a size here. */
struct seed_setup_data {
	uint64_t next;
	uint32_t type;
	uint32_t size;
	uint8_t seed[SEED_SIZE];
};

/* A guest without a seed spends its first seconds waiting for entropy. Kernels before 6.0 skip the
 * type. */
static int write_seed(const struct memory *memory)
{
	struct seed_setup_data data = { .type = SETUP_RNG_SEED, .size = SEED_SIZE };

	if (getrandom(data.seed, sizeof(data.seed), 0) != sizeof(data.seed))
		return error_set(-errno, "getrandom for the guest's seed: %m");
	return loader_write(memory, LAYOUT_SETUP_DATA, &data, sizeof(data));
}

static void fill_memory_map(const struct memory *memory, struct boot_params *params)
{
	struct e820_range ranges[E820_RANGES_MAX];
	size_t count = e820_build(memory, ranges);

	for (size_t i = 0; i < count; i++) {
		params->e820_table[i].addr = ranges[i].start;
		params->e820_table[i].size = ranges[i].size;
		params->e820_table[i].type = ranges[i].type;
	}
	params->e820_entries = (uint8_t)count;
}

int zero_page_write(const struct loader *loader, struct boot_params *params,
		    const struct placed *initrd)
{
	int error = write_seed(loader->memory);

	if (error)
		return error;
	fill_memory_map(loader->memory, params);
	params->acpi_rsdp_addr = loader->options->rsdp;
	params->hdr.type_of_loader = LOADER_UNDEFINED;
	params->hdr.vid_mode = VIDEO_MODE_NORMAL;
	params->hdr.cmd_line_ptr = LAYOUT_COMMAND_LINE;
	params->hdr.setup_data = LAYOUT_SETUP_DATA;
	params->hdr.ramdisk_image = (uint32_t)initrd->gpa; /* low RAM: below 4 GiB */
	params->hdr.ramdisk_size = (uint32_t)initrd->size;
	return loader_write(loader->memory, LAYOUT_ZERO_PAGE, params, sizeof(*params));
}
