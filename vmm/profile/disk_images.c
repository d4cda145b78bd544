// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/disk_images.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/profile/build_id_cache.h"
#include "vmm/profile/guest_disk.h"
#include "vmm/profile/profile_files.h"

static bool keep(const struct profile_image *image, const struct profile_options *options,
		 const struct bytes *file)
{
	char standard[PATH_MAX];
	const char *directory = options->buildid_dir;
	int result = 0;

	if (!directory) {
		result = build_id_cache_directory(standard, sizeof(standard));
		directory = standard;
	}
	if (!result)
		result = build_id_cache_replace_image(directory, image->build_id, image->build_id_size, file);
	if (result < 0)
		log_warning("%s of the guest's disk can not be kept: %s", image->path, error_message());
	return result > 0;
}

bool disk_images_fetch(struct profile_image *image, const struct profile_options *options, char *path)
{
	struct bytes file;
	bool found = false;

	if (image->fetched || image->kind != IMAGE_FILE || *image->path != '/')
		return false;
	image->fetched = true;
	for (size_t i = 0; i < options->disk_count && !found; i++) {
		log_progress("reading %s of the guest's disk", image->path);
		if (!guest_disk_read(options->disks[i], image->path, image->build_id, image->build_id_size,
				     &file))
			found = keep(image, options, &file);
		free(file.data);
	}
	log_progress("%s", "");
	return found &&
	       profile_files_cached(path, options->buildid_dir, image->build_id, image->build_id_size, "elf");
}
