/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/recording_disks.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/profile/disk_names.h"

/* A user waits for it; some 50 ms each, they are some hundred programs. */
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

/* Nothing could be looked into. */
static void say_no_disk(const struct disk_names_result *result)
{
	log_info(
		"%u of the guest's programs and libraries have not all their names, and its disks could not be "
		"looked into: %s%s%s",
		result->wanted, result->why, result->refused ? "; try kvmscope report --guest-disk " : "",
		result->refused ? result->refused : "");
}

static void say(const struct disk_names_result *result, int error)
{
	if (error == -ENOENT && result->wanted)
		log_info("the names of %u of the guest's programs and libraries are not looked for on its "
			 "disks: %s",
			 result->wanted, error_message());
	else if (error)
		log_debug("no names are looked for on the guest's disks: %s", error_message());
	else if (result->cut_short && !result->wanted)
		log_info("there was no time to look for names on the guest's disks: see kvmscope report "
			 "--guest-disk");
	else if (result->found || result->cut_short)
		log_info("%u of %u programs and libraries without all their names were found on the guest's "
			 "disks%s",
			 result->found, result->wanted,
			 result->cut_short ? "; for the others there was no time: see kvmscope report "
					     "--guest-disk"
					   : "");
	else if (result->wanted && !result->disks)
		say_no_disk(result);
}

void recording_disks_search(const struct recording_disks *recording)
{
	int signal_fd = recording->signal_fd;
	const struct disk_names_search search = { .recording = recording->output,
						  .files = recording->files,
						  .disks = recording->disks,
						  .disk_count = recording->count,
						  .broker = recording->broker,
						  .seconds = SECONDS,
						  .is_enough = has_signal,
						  .context = &signal_fd };
	struct disk_names_result result;
	int error;

	if (!recording->count || !is_file(recording->output))
		return;
	error = disk_names_fetch(&search, &result);
	say(&result, error);
}
