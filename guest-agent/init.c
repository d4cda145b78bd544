// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Any directory will do; this one is in every initramfs (usr/default_cpio_list of Linux). */
#define PLACE "/root"

static bool mount_new(const char *type, const char *path)
{
	return (!mkdir(path, 0755) || errno == EEXIST) &&
	       !mount(type, path, type, MS_NOSUID | MS_NOEXEC, NULL);
}

/*
 * A root of our own in a mount namespace of our own. The real init mounts,
 * moves and unmounts as it likes, deletes the initramfs and puts another root
 * over it: none of that reaches us.
 */
static bool make_place(void)
{
	return !unshare(CLONE_NEWNS) && !mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       mount_new("tmpfs", PLACE) && mount_new("proc", PLACE "/proc") &&
	       mount_new("sysfs", PLACE "/sys") && mount_new("devtmpfs", PLACE "/dev") &&
	       !chroot(PLACE) && !chdir("/");
}

static void be_quiet(void)
{
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
}

static void run_real_init(char **argv)
{
	char *path = getenv("kvmscope_init");

	argv[0] = strdup(path ? path : "/init");
	unsetenv("kvmscope_init");
	execv(argv[0], argv);
	dprintf(2, "kvmscope-agent: can not run %s, the initrd's init: %s\n", argv[0],
		strerror(errno));
	_exit(1);
}

/* The child is ready, or has failed, before the real init changes anything; or it takes too long.
 */
static void wait_for_child(int ready)
{
	struct pollfd end = { .fd = ready, .events = POLLIN };

	poll(&end, 1, 2000);
	close(ready);
}

void init_start_real(char **argv)
{
	int ready[2] = { -1, -1 };
	pid_t child = pipe(ready) ? -1 : fork();

	if (child) {
		close(ready[1]);
		if (child < 0)
			dprintf(2, "kvmscope-agent: no agent in this guest: %s\n", strerror(errno));
		else
			wait_for_child(ready[0]);
		run_real_init(argv);
	}
	close(ready[0]);
	setsid();
	if (!make_place()) {
		dprintf(2,
			"kvmscope-agent: no agent in this guest: can not mount its directories: %s\n",
			strerror(errno));
		_exit(1);
	}
	be_quiet();
	close(ready[1]);
	/* systemd ends all processes of the initrd but those that mark themselves so (its
	 * ROOT_STORAGE_DAEMONS). */
	argv[0][0] = '@';
}
