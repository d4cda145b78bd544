/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/record_archive.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/profile_arguments.h"
#include "vmm/report/profile_archive.h"

int record_archive_write(const struct profile_options *options, const char *path)
{
	struct profile_archive_counts counts;
	int error = profile_archive(options, path, &counts);

	if (error)
		return error;
	if (counts.missing)
		log_warning("%zu of %zu images have no symbols here", counts.missing,
			    counts.missing + counts.found);
	log_info("the symbols of %zu image%s, %.1f MiB, are in %s", counts.found,
		 counts.found == 1 ? "" : "s", (double)counts.size / (1 << 20), path);
	return 0;
}

static int archive_file(const char *recording)
{
	const struct profile_options options = { .input = recording, .vcpu = -1 };
	char path[PATH_MAX];
	int error = profile_arguments_archive(path, recording);

	return error ? error : record_archive_write(&options, path);
}

int record_archive(const struct record_options *options, unsigned int files)
{
	char recording[PATH_MAX];
	int error = 0;

	for (unsigned int i = 0; options->self_contained && i < files && !error; i++) {
		if (snprintf(recording, sizeof(recording), i ? "%s.%u" : "%s", options->output,
			     i) >= (int)sizeof(recording))
			return error_set(-ENAMETOOLONG, "%s is too long", options->output);
		error = archive_file(recording);
	}
	return error;
}
