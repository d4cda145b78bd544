/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/record_archive.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/confined_reader.h"
#include "vmm/cli/profile_arguments.h"
#include "vmm/report/profile_archive.h"
#include "vmm/symbols/build_id_cache_files.h"
#include "vmm/symbols/symbol_archive.h"

struct output {
	const struct profile_options *options;
	const char *path;
	struct cache_file file;
};

static int write_archive(void *context)
{
	const struct output *output = context;
	struct profile_archive_counts counts;
	int error = profile_archive(output->options, &output->file, &counts);

	if (error)
		return error;
	if (counts.missing)
		log_warning("%zu of %zu images have no symbols here", counts.missing,
			    counts.missing + counts.found);
	log_info("the symbols of %zu image%s, %.1f MiB, are in %s", counts.found,
		 counts.found == 1 ? "" : "s", (double)counts.size / (1 << 20), output->path);
	return 0;
}

int record_archive_write(const struct profile_arguments *arguments, const char *path, bool own)
{
	struct output output = { .options = &arguments->options, .path = path };
	int error = symbol_archive_open(&output.file, path);

	if (error)
		return error;
	error = confined_read(arguments, NULL, NULL, own ? &output.file.fd : NULL, write_archive,
			      &output);
	return cache_file_end(&output.file, error);
}

static int archive_file(const char *recording)
{
	const struct profile_arguments arguments = { .options = { .input = recording,
								  .vcpu = -1 } };
	char path[PATH_MAX];
	int error = profile_arguments_archive(path, recording);

	return error ? error : record_archive_write(&arguments, path, true);
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
