/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/private_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"

#define DIRECTORIES_MAX 2

static struct {
	pid_t process; /* that made them; its children do not remove them */
	size_t count;
	pid_t cleaners[DIRECTORIES_MAX];
	int ends[DIRECTORIES_MAX]; /* of pipes: closed when the process ends */
} made;

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

/* Signals of the terminal reach this process, too. */
static _Noreturn void run_cleaner(const char *path, int end)
{
	sigset_t all;
	char byte;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	dup2(end, STDIN_FILENO);
	/* Whoever reads our output must not wait for this process. */
	close_range(STDIN_FILENO + 1, UINT_MAX, 0);
	while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
		;
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	_exit(0);
}

/* Waits until they are removed. */
static void remove_all(void)
{
	if (made.process != getpid())
		return;
	for (size_t i = 0; i < made.count; i++)
		close(made.ends[i]);
	for (size_t i = 0; i < made.count; i++)
		while (waitpid(made.cleaners[i], NULL, 0) < 0 && errno == EINTR)
			;
}

static int start_cleaner(const char *path)
{
	int ends[2], error = 0;
	pid_t cleaner;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	cleaner = fork();
	if (!cleaner)
		run_cleaner(path, ends[0]);
	if (cleaner < 0)
		error = -errno;
	close(ends[0]);
	if (error) {
		close(ends[1]);
		return error;
	}
	made.cleaners[made.count] = cleaner;
	made.ends[made.count] = ends[1];
	if (!made.count++)
		atexit(remove_all);
	made.process = getpid();
	return 0;
}

int private_directory_make(char path[PATH_MAX])
{
	const char *parent = getenv("TMPDIR");
	int error;

	if (made.count == DIRECTORIES_MAX)
		return error_set(-EMFILE, "too many directories for symbols");
	if (snprintf(path, PATH_MAX, "%s/kvmscope-XXXXXX",
		     parent && *parent ? parent : "/var/tmp") >= PATH_MAX)
		return error_set(-ENAMETOOLONG, "TMPDIR is too long");
	if (!mkdtemp(path))
		return error_set(-errno, "cannot create a directory for symbols: %m");
	error = start_cleaner(path);
	if (error) {
		rmdir(path);
		return error_set(error, "cannot start the process that removes %s: %s", path,
				 strerror(-error));
	}
	return 0;
}
