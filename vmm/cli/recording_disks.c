/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/recording_disks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/open_disks.h"
#include "vmm/cli/confine.h"
#include "vmm/daemon/recording_file.h"
#include "vmm/disk/disk_symbols.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/disk/sandbox_broker.h"
#include "vmm/disk/sandbox_work.h"
#include "vmm/perf_data/recording_name.h"
#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/build_id_cache_files.h"

/* The user waits: some 50 ms per program allow for a few hundred. */
#define SECONDS 10
/* Most bytes of symbols of a domain. Its recordings and symbols may take 1 GiB by default. */
#define DOMAIN_TOTAL_MAX (512ull << 20)

static bool has_signal(void *context)
{
	struct pollfd signal = { .fd = *(int *)context, .events = POLLIN };

	return poll(&signal, 1, 0) > 0;
}

static bool is_file(const char *path)
{
	char found[PATH_MAX];
	struct stat status;

	return !recording_name_find(path, found, &status) && S_ISREG(status.st_mode);
}

static void log_unreadable(const char *whose, const struct disk_symbols_result *result)
{
	log_info(
		"%s%u of the guest's user-space images lack symbols, and its disks could not be read: "
		"%s%s%s",
		whose, result->wanted, result->why,
		result->refused ? "; try kvmscope report --guest-disk " : "",
		result->refused ? result->refused : "");
}

/* WHOSE begins each line. */
static void log_result(const char *whose, const struct disk_symbols_result *result, int error)
{
	const char *later =
		result->cut_short
			? "; there was no time for the others: see kvmscope report --guest-disk"
			: "";

	if (error == -ENOENT && result->wanted)
		log_info(
			"%ssymbols of %u of the guest's user-space images are not searched on its disks: %s",
			whose, result->wanted, error_message());
	else if (error)
		log_debug("%sno symbols are searched on the guest's disks: %s", whose,
			  error_message());
	else if (result->cut_short && !result->wanted)
		log_info(
			"%sthere was no time to search the guest's disks for symbols: see kvmscope "
			"report --guest-disk",
			whose);
	else if (result->found || result->cut_short)
		log_info(
			"%sthe guest's disks had symbols for %u of %u user-space images that lack some%s",
			whose, result->found, result->wanted, later);
	else if (result->wanted && !result->disks)
		log_unreadable(whose, result);
	else if (result->wanted && !result->full)
		log_info(
			"%sthe guest's disks have no further symbols for the %u user-space images that "
			"lack some",
			whose, result->wanted);
}

static int search(void *context)
{
	const struct recording_disks *recording = context;
	int signal_fd = recording->signal_fd;
	const struct disk_symbols_search search = { .recording = recording->output,
						    .files = recording->files,
						    .directory = recording->directory,
						    .total_max = recording->total_max,
						    .once = recording->once,
						    .disks = recording->disks,
						    .disk_count = recording->count,
						    .broker = recording->broker,
						    .seconds = SECONDS,
						    .is_enough = has_signal,
						    .context = &signal_fd };
	struct disk_symbols_result result;
	int error = disk_symbols_fetch(&search, &result);

	log_result(recording->whose ? recording->whose : "", &result, error);
	return 0;
}

/* The recording and the guest's files are parsed in a sandbox, which reads the disks by the broker.
 */
static void search_confined(const struct recording_disks *recording)
{
	struct recording_disks context = *recording;
	char directory[PATH_MAX], folder[PATH_MAX];
	const char *slash = strrchr(recording->output, '/');
	int length = !slash || slash == recording->output ? 1 : (int)(slash - recording->output);
	const char *const readable[] = { folder, NULL }, *const writable[] = { directory, NULL };
	const int files[] = { sandbox_broker_fd(recording->broker), recording->signal_fd };
	const struct sandbox_work work = { .input = recording->output,
					   .readable = readable,
					   .writable = writable,
					   .uid = geteuid(),
					   .gid = getegid(),
					   .reads_any = true,
					   .writes_any = true,
					   .seconds = 2 * SECONDS,
					   .files = files,
					   .file_count = sizeof(files) / sizeof(files[0]),
					   .keeps_signals = true,
					   .is_over = has_signal,
					   .context = &context.signal_fd };

	if (recording->directory)
		snprintf(directory, sizeof(directory), "%s", recording->directory);
	else if (build_id_cache_directory(directory, sizeof(directory)))
		return;
	context.directory = directory;
	snprintf(folder, sizeof(folder), "%.*s", length, slash ? recording->output : ".");
	cache_make_directory(directory); /* for a rule; errors are reported by the search */
	if (sandbox_work_run(&work, search, &context))
		log_warning("no further symbols are read from the guest's disks: %s",
			    error_message());
}

void recording_disks_search(const struct recording_disks *recording)
{
	struct recording_disks context = *recording;

	if (!recording->count || !is_file(recording->output))
		return;
	if (recording->broker && !geteuid() && !confine_is_active())
		search_confined(recording);
	else
		search(&context);
}

/* The path of NAME in the folder of RECORDING. */
static bool path_beside(const char *recording, const char *name, char path[PATH_MAX])
{
	const char *end = strrchr(recording, '/');
	int folder = end ? (int)(end + 1 - recording) : 0;

	return snprintf(path, PATH_MAX, "%.*s%s", folder, recording, name) < PATH_MAX;
}

void recording_disks_describe(const struct open_disks *disks, struct disk_file *places)
{
	for (size_t i = 0; i < disks->count; i++)
		places[i] = (struct disk_file){ .path = disks->paths[i],
						.device = disks->files[i].device,
						.inode = disks->files[i].inode };
}

/* The VM's owner chose these paths: a broker opens only the files that the VM has open. */
static void search_open(const struct open_disks *disks, struct recording_disks recording)
{
	struct disk_file places[OPEN_DISKS_MAX];
	const char *paths[OPEN_DISKS_MAX];

	recording_disks_describe(disks, places);
	for (size_t i = 0; i < disks->count; i++)
		paths[i] = disks->paths[i];
	recording.disks = paths;
	recording.count = disks->count;
	if (guest_disk_reader() &&
	    sandbox_broker_start(&recording.broker, guest_disk_reader(), places, disks->count)) {
		log_debug("%s", error_message());
		return;
	}
	recording_disks_search(&recording);
	sandbox_broker_end(recording.broker);
}

void recording_disks_search_domain(const char *recording, pid_t pid, const char *whose)
{
	char domain[PATH_MAX], names[PATH_MAX], process[32];
	struct recording_disks search = { .output = recording,
					  .files = 1,
					  .directory = names,
					  .total_max = DOMAIN_TOTAL_MAX,
					  .once = whose != NULL,
					  .whose = whose,
					  .signal_fd = -1 };
	struct open_disks disks;
	int directory;

	if (!path_beside(recording, RECORDING_DOMAIN, domain) || !is_file(domain) ||
	    !path_beside(recording, RECORDING_NAMES, names))
		return;
	snprintf(process, sizeof(process), "/proc/%d", pid);
	directory = open(process, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return;
	open_disks_find(&disks, directory);
	close(directory);
	search_open(&disks, search);
}
