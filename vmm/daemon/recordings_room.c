// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/daemon/recordings_state.h"

/* Some file systems show what was freed only later: so long, in ms, it is taken for free. */
#define FREED_SHOWS 5000
/* ms between two lines of the log about what went. */
#define SAY_INTERVAL 60000

/* Also where the file can not be unlinked: it is out of our hands then. */
static void remove_oldest(struct recordings *all, struct recorded_domain *domain, uint64_t *counter)
{
	const struct recorded_file *oldest = recorded_file_at(domain, 0);
	char path[RECORDING_PATH_SIZE];

	recorded_file_path(domain, oldest->time, recorded_file_state(oldest), path);
	if (unlinkat(all->fd, path, 0) && errno != ENOENT)
		log_warning("can't remove %s/%s: %s", all->directory, path, strerror(errno));
	++*counter;
	all->statistics.not_handed_on += oldest->is_new;
	recorded_domain_drop_oldest(domain);
}

static bool is_beyond_limits(const struct recordings *all, const struct recorded_domain *domain,
			     uint64_t now)
{
	const struct recordings_options *options = &all->options;

	if (!domain->count)
		return false;
	return (options->max_size && domain->bytes + domain->names > options->max_size) ||
	       (options->max_age &&
		recorded_file_at(domain, 0)->time + options->max_age * 1000 < now);
}

void recordings_keep_limits(struct recordings *all, struct recorded_domain *domain)
{
	uint64_t now = clock_ms(CLOCK_REALTIME);

	while (is_beyond_limits(all, domain, now))
		remove_oldest(all, domain, &all->statistics.removed);
}

static struct recorded_domain *with_oldest(const struct recordings *all)
{
	struct recorded_domain *oldest = NULL;

	for (struct recorded_domain *domain = all->domains; domain; domain = domain->next)
		if (domain->count && (!oldest || recorded_file_at(domain, 0)->time <
							 recorded_file_at(oldest, 0)->time))
			oldest = domain;
	return oldest;
}

/* A disk that stays full takes a file for each that is recorded. */
static void say_sacrificed(struct recordings *all)
{
	uint64_t now = clock_ms(CLOCK_MONOTONIC);

	if (all->said_at && now - all->said_at < SAY_INTERVAL)
		return;
	log_warning("%s has no room: its oldest recordings go, %llu since the start",
		    all->directory, (unsigned long long)all->statistics.sacrificed);
	all->said_at = now;
}

/* At least BYTES, of the oldest files of any domain; how much it was. */
static uint64_t sacrifice(struct recordings *all, uint64_t bytes)
{
	uint64_t freed = 0;
	struct recorded_domain *domain;

	while (freed < bytes && (domain = with_oldest(all))) {
		freed += recorded_file_at(domain, 0)->size;
		remove_oldest(all, domain, &all->statistics.sacrificed);
	}
	if (freed)
		say_sacrificed(all);
	return freed;
}

uint64_t recordings_missing(struct recordings *all, uint64_t size)
{
	uint64_t wanted = all->options.reserve + size, have;
	struct statvfs status;

	if (fstatvfs(all->fd, &status)) /* the write will tell */
		return 0;
	if (clock_ms(CLOCK_MONOTONIC) - all->freed_at > FREED_SHOWS)
		all->freed = 0;
	have = (uint64_t)status.f_bavail * status.f_frsize + all->freed;
	return wanted > have ? wanted - have : 0;
}

int recordings_make_room(struct recordings *all, uint64_t size, bool full)
{
	uint64_t wanted = full ? size : recordings_missing(all, size), freed;

	if (!wanted)
		return 0;
	freed = sacrifice(all, wanted);
	all->freed += freed;
	all->freed_at = clock_ms(CLOCK_MONOTONIC);
	if (full ? freed > 0 : freed >= wanted)
		return 0;
	return error_set(
		-ENOSPC,
		"%s has no room, and there are no older recordings that could go; %llu MiB are left free for others",
		all->directory, (unsigned long long)all->options.reserve >> 20);
}
