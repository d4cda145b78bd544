/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/rights.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"

static const unsigned int kept[] = { CAP_PERFMON, CAP_BPF, CAP_SYS_PTRACE };

/* For PATH and, if it will be created or replaced, its directory. */
static bool is_accessible(const char *path, int mode)
{
	char directory[PATH_MAX];
	struct stat status;
	char *slash;

	if (!faccessat(AT_FDCWD, path, mode, AT_EACCESS)) {
		if (mode != W_OK || stat(path, &status) || !S_ISREG(status.st_mode))
			return true;
	} else if (errno != ENOENT) {
		return false;
	}
	if (snprintf(directory, sizeof(directory), "%s", path) >= (int)sizeof(directory))
		return false;
	slash = strrchr(directory, '/');
	if (slash)
		slash[slash == directory] = '\0';
	return !faccessat(AT_FDCWD, slash ? directory : ".", mode, AT_EACCESS);
}

static bool are_accessible(const struct rights_file *files, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (files[i].path && !is_accessible(files[i].path, files[i].mode))
			return false;
	return true;
}

/* Tests perf events on our own thread, with the kernel included. */
static bool may_use_perf(void)
{
	struct perf_event_attr attribute = { .size = sizeof(attribute),
					     .type = PERF_TYPE_SOFTWARE,
					     .config = PERF_COUNT_SW_CPU_CLOCK };
	int fd = (int)syscall(SYS_perf_event_open, &attribute, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Capabilities that may be needed as substitutes. */
struct spare {
	unsigned int capability;
	bool needed;
};

/* SPARES stay permitted, but not effective. */
static int try_without(const struct spare *spares, size_t count)
{
	bool has[CAP_LAST_CAP + 1];

	if (capng_get_caps_process())
		return -EPERM;
	for (unsigned int i = 0; i <= CAP_LAST_CAP; i++)
		has[i] = capng_have_capability(CAPNG_PERMITTED, i);
	capng_clear(CAPNG_SELECT_CAPS);
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (has[kept[i]])
			capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, kept[i]);
	for (size_t i = 0; i < count; i++)
		if (has[spares[i].capability])
			capng_update(CAPNG_ADD, CAPNG_PERMITTED, spares[i].capability);
	return capng_apply(CAPNG_SELECT_CAPS) ? -EPERM : 0;
}

/* Makes the needed ones effective, and drops the others. */
static int settle(const struct spare *spares, size_t count)
{
	if (capng_get_caps_process())
		return -EPERM;
	for (size_t i = 0; i < count; i++) {
		if (!capng_have_capability(CAPNG_PERMITTED, spares[i].capability))
			continue;
		if (spares[i].needed)
			log_debug("keeping the capability %s",
				  capng_capability_to_name(spares[i].capability));
		capng_update(spares[i].needed ? CAPNG_ADD : CAPNG_DROP,
			     spares[i].needed ? CAPNG_EFFECTIVE : CAPNG_PERMITTED,
			     spares[i].capability);
	}
	return capng_apply(CAPNG_SELECT_CAPS) ? -EPERM : 0;
}

static int refuse(int error)
{
	return error_set(error, "cannot drop unneeded capabilities: %s", strerror(-error));
}

int rights_keep_only(const unsigned int *capabilities, size_t count)
{
	bool has[CAP_LAST_CAP + 1], may_limit;

	if (capng_get_caps_process())
		return refuse(-EPERM);
	for (unsigned int i = 0; i <= CAP_LAST_CAP; i++)
		has[i] = capng_have_capability(CAPNG_PERMITTED, i);
	may_limit = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP);
	capng_clear(CAPNG_SELECT_BOTH);
	for (size_t i = 0; i < count; i++)
		if (has[capabilities[i]])
			capng_update(CAPNG_ADD,
				     CAPNG_EFFECTIVE | CAPNG_PERMITTED |
					     (may_limit ? CAPNG_BOUNDING_SET : 0),
				     capabilities[i]);
	if (capng_apply(may_limit ? CAPNG_SELECT_BOTH : CAPNG_SELECT_CAPS) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return refuse(-EPERM);
	return 0;
}

int rights_keep(const struct rights_file *files, size_t count, bool reads_filters)
{
	struct spare spares[] = { { .capability = CAP_DAC_OVERRIDE },
				  { .capability = CAP_SYS_ADMIN } };
	const size_t spare_count = sizeof(spares) / sizeof(spares[0]);
	int error;

	error = try_without(spares, spare_count);
	spares[0].needed = !are_accessible(files, count);
	spares[1].needed = reads_filters || !may_use_perf();
	if (!error)
		error = settle(spares, spare_count);
	if (!error && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		error = -errno;
	return error ? refuse(error) : 0;
}
