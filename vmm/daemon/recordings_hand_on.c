// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "shared/clock_ns.h"
#include "shared/log.h"
#include "vmm/daemon/recordings_state.h"

int recordings_new_fd(const struct recordings *all)
{
	return all->new_fd;
}

/* Those that wait are the latest of a domain: files are handed on in their order. NULL: none waits.
 */
static struct recorded_file *first_new(const struct recorded_domain *domain)
{
	size_t index = domain->count;

	while (index && recorded_file_at(domain, index - 1)->is_new)
		index--;
	return index < domain->count ? recorded_file_at(domain, index) : NULL;
}

static struct recorded_domain *with_oldest_new(const struct recordings *all)
{
	struct recorded_domain *oldest = NULL;

	for (struct recorded_domain *domain = all->domains; domain; domain = domain->next)
		if (first_new(domain) &&
		    (!oldest || first_new(domain)->time < first_new(oldest)->time))
			oldest = domain;
	return oldest;
}

static void describe_file(const struct recordings *all, const struct recorded_domain *domain,
			  struct recordings_file *file)
{
	char path[RECORDING_PATH_SIZE];
	struct stat status;
	uint64_t changed;

	file->from = file->until = first_new(domain)->time;
	recorded_file_path(domain, file->from, RECORDING_NEW, path);
	if (!fstatat(all->fd, path, &status, AT_SYMLINK_NOFOLLOW)) {
		changed = (uint64_t)status.st_mtim.tv_sec * MS_PER_S +
			  (uint64_t)status.st_mtim.tv_nsec / NS_PER_MS;
		/* File systems go by a clock that is a tick behind, and clocks are set back. */
		file->until = changed > file->from ? changed : file->from;
	}
	snprintf(file->path, sizeof(file->path), "%s/%s", all->directory, path);
	snprintf(file->names, sizeof(file->names), "%s/%s/" RECORDING_NAMES, all->directory,
		 domain->file);
	snprintf(file->domain, sizeof(file->domain), "%s", domain->name);
}

bool recordings_next(struct recordings *all, struct recordings_file *file)
{
	const struct recorded_domain *domain;
	eventfd_t ignored;

	pthread_mutex_lock(&all->lock);
	domain = with_oldest_new(all);
	if (domain)
		describe_file(all, domain, file);
	else
		eventfd_read(all->new_fd, &ignored);
	pthread_mutex_unlock(&all->lock);
	return domain;
}

static void hand_on(struct recordings *all, const struct recorded_domain *domain,
		    struct recorded_file *entry)
{
	char from[RECORDING_PATH_SIZE], to[RECORDING_PATH_SIZE];

	recorded_file_path(domain, entry->time, RECORDING_NEW, from);
	recorded_file_path(domain, entry->time, RECORDING_COMPLETE, to);
	if (renameat(all->fd, from, all->fd, to)) /* it is handed on again after the next start */
		log_warning("can't rename %s/%s: %s", all->directory, from, strerror(errno));
	entry->is_new = false;
}

void recordings_done(struct recordings *all, const struct recordings_file *file)
{
	const struct recorded_domain *domain;
	struct recorded_file *entry;

	pthread_mutex_lock(&all->lock);
	domain = recordings_find(all, file->domain);
	entry = domain ? first_new(domain) : NULL;
	if (entry && entry->time == file->from) /* else it has gone meanwhile */
		hand_on(all, domain, entry);
	pthread_mutex_unlock(&all->lock);
}
