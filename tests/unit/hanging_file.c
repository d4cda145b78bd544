/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/hanging_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Mounted over for this process only: a file that each machine has. */
#define PLACE "/etc/passwd"

static int fuse;
static size_t file_size;

static void answer(uint64_t unique, int error, void *body, size_t size)
{
	struct fuse_out_header header = { .len = (uint32_t)(sizeof(header) + size),
					  .error = error,
					  .unique = unique };
	const struct iovec parts[] = { { &header, sizeof(header) }, { body, size } };

	if (writev(fuse, parts, 2) < 0)
		perror("FUSE");
}

static void serve_request(const struct fuse_in_header *request)
{
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
				      .minor = 31,
				      .max_write = 4096 };
	struct fuse_attr_out attributes = { .attr = { .ino = FUSE_ROOT_ID,
						      .size = file_size,
						      .mode = S_IFREG | 0755,
						      .nlink = 1,
						      .blksize = 4096 } };
	/* The FUSE server does not answer flushes after its end. */
	struct fuse_open_out opened = { .fh = 1, .open_flags = FOPEN_NOFLUSH };

	switch (request->opcode) {
	case FUSE_INIT:
		answer(request->unique, 0, &init, sizeof(init));
		break;
	case FUSE_GETATTR:
		answer(request->unique, 0, &attributes, sizeof(attributes));
		break;
	case FUSE_OPEN:
		answer(request->unique, 0, &opened, sizeof(opened));
		break;
	case FUSE_READ:
		break;
	default:
		answer(request->unique, -ENOSYS, NULL, 0);
	}
}

static void *serve(void *context)
{
	static uint8_t request[FUSE_MIN_READ_BUFFER];

	while (read(fuse, request, sizeof(request)) >= (ssize_t)sizeof(struct fuse_in_header))
		serve_request((const struct fuse_in_header *)request);
	return NULL;
}

/* Mounts on PATH a file system whose root is its only file. */
static bool mount_file(const char *path)
{
	char options[64];
	pthread_t thread;

	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(options, sizeof(options), "fd=%d,rootmode=100000,user_id=0,group_id=0", fuse);
	return fuse >= 0 && !unshare(CLONE_NEWNS) &&
	       !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("hanging", path, "fuse", MS_NOSUID | MS_NODEV, options) &&
	       !pthread_create(&thread, NULL, serve, NULL);
}

int hanging_file_open(size_t size)
{
	struct stat status;
	int fd;

	file_size = size;
	fd = mount_file(PLACE) ? open(PLACE, O_RDONLY | O_CLOEXEC) : -1;
	/* The kernel has no size before it asks for attributes. */
	return fd >= 0 && !fstat(fd, &status) && status.st_size == (off_t)size ? fd : -1;
}
