/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/disk_images.h"

#include <limits.h>
#include <stdlib.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/symbol_paths.h"

static bool store(const char *directory, const char *recorded, const uint8_t *build_id,
		  size_t build_id_size, const struct bytes *file)
{
	char standard[PATH_MAX];
	int result = 0;

	if (!directory) {
		result = build_id_cache_directory(standard, sizeof(standard));
		directory = standard;
	}
	if (!result)
		result = build_id_cache_replace_image(directory, build_id, build_id_size, file);
	if (result < 0)
		log_warning("cannot store %s from the guest's disk: %s", recorded, error_message());
	return result > 0;
}

bool disk_images_fetch(char *path, struct guest_disk *const *disks, size_t count,
		       const char *buildid_dir, const char *recorded, const uint8_t *build_id,
		       size_t build_id_size)
{
	struct bytes file;
	bool found = false;

	for (size_t i = 0; i < count && !found; i++) {
		log_progress("reading %s of the guest's disk", recorded);
		if (!guest_disk_read(disks[i], recorded, build_id, build_id_size, &file))
			found = store(buildid_dir, recorded, build_id, build_id_size, &file);
		free(file.data);
	}
	log_progress("%s", "");
	return found && symbol_paths_cached(path, buildid_dir, build_id, build_id_size, "elf");
}
