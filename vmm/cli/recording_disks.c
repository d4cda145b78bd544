/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/recording_disks.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/profile/disk_names.h"

/* A user waits for it; some 50 ms each, they are some hundred files. */
#define SECONDS 10

static bool has_signal(void *context)
{
	struct pollfd signal = { .fd = *(int *)context, .events = POLLIN };

	return poll(&signal, 1, 0) > 0;
}

static bool is_file(const char *path)
{
	struct stat status;

	return !stat(path, &status) && S_ISREG(status.st_mode);
}

static void add(struct disk_names_result *sum, const struct disk_names_result *result)
{
	sum->wanted += result->wanted;
	sum->found += result->found;
	sum->disks = result->disks;
	sum->cut_short |= result->cut_short;
}

static void say(const struct disk_names_result *result, const char *disk, int error)
{
	if (error == -ENOENT && result->wanted)
		log_info("the names of %u of the guest's programs and libraries are not looked for on its "
			 "disks: %s",
			 result->wanted, error_message());
	else if (error)
		log_debug("no names are looked for on the guest's disks: %s", error_message());
	else if (result->wanted && !result->disks)
		log_info("%u of the guest's programs and libraries have not all their names; its disks could "
			 "not be looked into: try kvmscope report --guest-disk %s",
			 result->wanted, disk);
	else if (result->found || result->cut_short)
		log_info("%u of %u programs and libraries without all their names were found on the guest's "
			 "disks%s",
			 result->found, result->wanted,
			 result->cut_short ? "; for the others there was no time: see kvmscope report "
					     "--guest-disk"
					   : "");
}

void recording_disks_search(const struct recording_disks *recording)
{
	struct disk_names_result sum = { 0 }, result;
	int signal_fd = recording->signal_fd, error = 0;
	char path[PATH_MAX];
	struct disk_names_search search = { .recording = path,
					    .disks = recording->disks,
					    .disk_count = recording->count,
					    .is_enough = has_signal,
					    .context = &signal_fd };
	time_t end = time(NULL) + SECONDS, now;

	if (!recording->count || !is_file(recording->output))
		return;
	for (unsigned int i = 0; i < recording->files && !error && !sum.cut_short; i++) {
		snprintf(path, sizeof(path), i ? "%s.%u" : "%s", recording->output, i);
		now = time(NULL);
		search.seconds = now < end ? (unsigned int)(end - now) : 0;
		error = disk_names_fetch(&search, &result);
		add(&sum, &result);
	}
	say(&sum, recording->disks[0], error);
}
