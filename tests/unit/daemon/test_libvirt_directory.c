// SPDX-License-Identifier: Apache-2.0
/* What cannot be found out now is not taken for a domain without a process. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/daemon/libvirt_directory.h"

struct place {
	char directory[64], path[160];
	pid_t process; /* holds the lock of its file */
};

/* With the process of the domain whose file is FILE.pid. */
static void set_up(struct place *place, const char *file)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int ready[2];
	char byte;

	*place = (struct place){ .directory = "/tmp/kvmscope-libvirt-XXXXXX" };
	REQUIRE(mkdtemp(place->directory) && !pipe2(ready, O_CLOEXEC));
	snprintf(place->path, sizeof(place->path), "%s/%s.pid", place->directory, file);
	place->process = fork();
	if (!place->process) {
		int fd = open(place->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		dprintf(fd, "%d\n", getpid());
		if (!fcntl(fd, F_SETLK, &lock) && write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	REQUIRE(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
}

static void end_process(struct place *place)
{
	kill(place->process, SIGKILL);
	waitpid(place->process, NULL, 0);
}

static void remove_all(const struct place *place)
{
	unlink(place->path);
	rmdir(place->directory);
}

/* What is said of it where no more than SPARE descriptors can be had. */
static int look(const struct place *place, const char *name, int spare)
{
	struct libvirt_process process = { .fd = -1 };
	struct rlimit before, few;
	int next = dup(STDIN_FILENO), error;

	close(next);
	getrlimit(RLIMIT_NOFILE, &before);
	few = (struct rlimit){ (rlim_t)(next + spare), before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &few);
	error = libvirt_directory_process(place->directory, name, &process);
	setrlimit(RLIMIT_NOFILE, &before);
	if (!error)
		close(process.fd);
	return error;
}

TEST(libvirt_directory, who_has_no_descriptors_left_does_not_lose_domains)
{
	struct place place;

	set_up(&place, "web");
	CHECK_EQUAL(look(&place, "web", 2), 0);
	CHECK_EQUAL(look(&place, "web", 1), -EMFILE); /* the file, but not the process */
	CHECK_EQUAL(look(&place, "web", 0), -EMFILE);
	end_process(&place);
	CHECK_EQUAL(look(&place, "web", 2), -ENOENT);
	CHECK_EQUAL(look(&place, "db", 2), -ENOENT);
	CHECK_EQUAL(look(&place, "../web", 2), -ENOENT);
	remove_all(&place);
}

static void check_file(const char *name, const char *file)
{
	struct place place;

	set_up(&place, file);
	if (look(&place, name, 2))
		FAIL_TEST("the process of '%s' is not found by %s.pid", name, file);
	if (strcmp(name, file) != 0)
		CHECK_EQUAL(look(&place, file, 2), -ENOENT); /* it would be another domain's */
	end_process(&place);
	remove_all(&place);
}

TEST(libvirt_directory, has_the_names_that_libvirt_writes)
{
	char longest[DOMAIN_NAME_SIZE + 1];
	struct place place;

	check_file("..", "..");
	check_file(".x", ".x");
	check_file("two\nlines", "two\nlines");
	check_file("\"a\" <b> & 'c' %41", "&quot;a&quot; &lt;b&gt; &amp; &apos;c&apos; %41");
	set_up(&place, "web");
	end_process(&place);
	CHECK_EQUAL(look(&place, "", 2), -ENOENT);
	memset(longest, '"', DOMAIN_NAME_SIZE);
	longest[DOMAIN_NAME_SIZE] = '\0';
	CHECK_EQUAL(look(&place, longest, 2), -ENOENT);
	remove_all(&place);
}
