/* SPDX-License-Identifier: Apache-2.0 */
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

/* Any directory works; this one is in every initramfs (usr/default_cpio_list of Linux). */
#define ROOT "/root"

static bool mount_new(const char *type, const char *path)
{
	return (!mkdir(path, 0755) || errno == EEXIST) &&
	       !mount(type, path, type, MS_NOSUID | MS_NOEXEC, NULL);
}

/* A private root in a private mount namespace, which the real init's mounts and its switch to
 * another root do not affect.
 */
static bool make_root(void)
{
	return !unshare(CLONE_NEWNS) && !mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       mount_new("tmpfs", ROOT) && mount_new("proc", ROOT "/proc") &&
	       mount_new("sysfs", ROOT "/sys") && mount_new("devtmpfs", ROOT "/dev") &&
	       !chroot(ROOT) && !chdir("/");
}

static void silence_output(void)
{
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
}

static void exec_real_init(char **argv)
{
	char *path = getenv("kvmscope_init");

	argv[0] = strdup(path ? path : "/init");
	unsetenv("kvmscope_init");
	execv(argv[0], argv);
	dprintf(2, "kvmscope-agent: cannot run %s, the initrd's init: %s\n", argv[0],
		strerror(errno));
	_exit(1);
}

/* Waits up to 2 s until the child is ready or has failed, before the real init changes anything. */
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
		exec_real_init(argv);
	}
	close(ready[0]);
	setsid();
	if (!make_root()) {
		dprintf(2,
			"kvmscope-agent: no agent in this guest: cannot mount its directories: %s\n",
			strerror(errno));
		_exit(1);
	}
	silence_output();
	close(ready[1]);
	/* systemd kills all processes of the initrd except those with this mark (its
	 * ROOT_STORAGE_DAEMONS). */
	argv[0][0] = '@';
}
