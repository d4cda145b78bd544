/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/hook_install.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/daemon/hook_message.h"

#define FOLDER "qemu.d"
#define NAME   "kvmscope"

#define COMPARED_MAX (1 << 20) /* bytes read of an existing file */

/* Relative to the project's root, where make runs; module.mk builds the file. */
__asm__(".pushsection .rodata\n"
	"hook_program_start:\n"
	".incbin \"build/hook/kvmscope-hook\"\n"
	"hook_program_end:\n"
	".popsection\n");

extern const uint8_t hook_program_start[], hook_program_end[];

static size_t program_size(void)
{
	return (size_t)(hook_program_end - hook_program_start);
}

static enum hook_state compare(const char *bytes, size_t size)
{
	if (size == program_size() && !memcmp(bytes, hook_program_start, size))
		return HOOK_CURRENT;
	return memmem(bytes, size, HOOK_MARK, strlen(HOOK_MARK)) ? HOOK_OTHER : HOOK_FOREIGN;
}

static int read_state(int fd, const char *path, enum hook_state *state)
{
	char *bytes = malloc(COMPARED_MAX);
	ssize_t size = bytes ? pread(fd, bytes, COMPARED_MAX, 0) : -1;
	int error = 0;

	if (size < 0)
		error = error_set(-EIO, "cannot read %s", path);
	else
		*state = compare(bytes, (size_t)size);
	free(bytes);
	return error;
}

int hook_find(const char *hooks, enum hook_state *state, char path[PATH_MAX])
{
	int fd, error;

	*state = HOOK_ABSENT;
	if (snprintf(path, PATH_MAX, "%s/" FOLDER "/" NAME, hooks) >= PATH_MAX)
		return error_set(-ENAMETOOLONG, "the path %s is too long", hooks);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0 && errno == ELOOP) { /* kvmscope creates no links */
		*state = HOOK_FOREIGN;
		return 0;
	}
	if (fd < 0)
		return error_set(-errno, "cannot open %s: %s", path, strerror(errno));
	error = read_state(fd, path, state);
	close(fd);
	return error;
}

static bool is_others(const struct dirent *entry)
{
	return *entry->d_name != '.' && strcmp(entry->d_name, NAME) != 0;
}

bool hook_has_others(const char *hooks)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	bool found;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/qemu", hooks);
	found = !access(path, X_OK);
	snprintf(path, sizeof(path), "%s/" FOLDER, hooks);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		found |= is_others(entry);
	if (folder)
		closedir(folder);
	return found;
}

static int refuse(const char *path)
{
	return error_set(-EEXIST, "%s is not kvmscope's and stays unchanged", path);
}

static int create_directory(const char *path)
{
	return mkdir(path, 0755) && errno != EEXIST
		       ? error_set(-errno, "cannot create the directory %s: %s", path,
				   strerror(errno))
		       : 0;
}

static int create_directories(const char *hooks)
{
	char path[PATH_MAX];
	int error = create_directory(hooks);

	snprintf(path, sizeof(path), "%s/" FOLDER, hooks);
	return error ? error : create_directory(path);
}

static int write_program(int fd, const char *path)
{
	size_t size = program_size();

	if (write(fd, hook_program_start, size) != (ssize_t)size || fchmod(fd, 0755) || fsync(fd))
		return error_set(-errno, "cannot write %s: %s", path, strerror(errno));
	return 0;
}

/* Written outside the folder, where libvirt would run it before it is complete. */
static int write_hook(const char *hooks, const char *path)
{
	char unfinished[PATH_MAX];
	int fd, error;

	snprintf(unfinished, sizeof(unfinished), "%s/.kvmscope.%d", hooks, getpid());
	fd = open(unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_set(-errno, "cannot create %s: %s", unfinished, strerror(errno));
	error = write_program(fd, unfinished);
	close(fd);
	if (!error && rename(unfinished, path))
		error = error_set(-errno, "cannot rename the hook to %s: %s", path,
				  strerror(errno));
	if (error)
		unlink(unfinished);
	return error;
}

int hook_install(const char *hooks)
{
	enum hook_state state;
	char path[PATH_MAX];
	int error = hook_find(hooks, &state, path);

	if (error || state == HOOK_CURRENT)
		return error;
	if (state == HOOK_FOREIGN)
		return refuse(path);
	error = create_directories(hooks);
	return error ? error : write_hook(hooks, path);
}

int hook_uninstall(const char *hooks)
{
	enum hook_state state;
	char path[PATH_MAX];
	int error = hook_find(hooks, &state, path);

	if (error)
		return error;
	if (state == HOOK_ABSENT)
		return error_set(-ENOENT, "%s does not exist", path);
	if (state == HOOK_FOREIGN)
		return refuse(path);
	if (unlink(path))
		return error_set(-errno, "cannot remove %s: %s", path, strerror(errno));
	*strrchr(path, '/') = '\0';
	rmdir(path); /* fails if it is not empty */
	return 0;
}
