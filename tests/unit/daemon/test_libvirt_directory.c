/* SPDX-License-Identifier: Apache-2.0 */
/* An error that may pass does not mean that a domain has no process. */
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

struct fixture {
	char directory[64], path[160];
	pid_t process; /* holds the lock of its file */
};

/* Creates FILE.pid, locked by a process. */
static void set_up(struct fixture *fixture, const char *file)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int ready[2];
	char byte;

	*fixture = (struct fixture){ .directory = "/tmp/kvmscope-libvirt-XXXXXX" };
	REQUIRE(mkdtemp(fixture->directory) && !pipe2(ready, O_CLOEXEC));
	snprintf(fixture->path, sizeof(fixture->path), "%s/%s.pid", fixture->directory, file);
	fixture->process = fork();
	if (!fixture->process) {
		int fd = open(fixture->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		dprintf(fd, "%d\n", getpid());
		if (!fcntl(fd, F_SETLK, &lock) && write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	REQUIRE(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
}

static void end_process(struct fixture *fixture)
{
	kill(fixture->process, SIGKILL);
	waitpid(fixture->process, NULL, 0);
}

static void remove_all(const struct fixture *fixture)
{
	unlink(fixture->path);
	rmdir(fixture->directory);
}

/* The result of a lookup with SPARE free descriptors. */
static int lookup(const struct fixture *fixture, const char *name, int spare)
{
	struct libvirt_process process = { .fd = -1 };
	struct rlimit before, few;
	int next = dup(STDIN_FILENO), error;

	close(next);
	getrlimit(RLIMIT_NOFILE, &before);
	few = (struct rlimit){ (rlim_t)(next + spare), before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &few);
	error = libvirt_directory_process(fixture->directory, name, &process);
	setrlimit(RLIMIT_NOFILE, &before);
	if (!error)
		close(process.fd);
	return error;
}

TEST(libvirt_directory, without_descriptors_no_domain_is_lost)
{
	struct fixture fixture;

	set_up(&fixture, "web");
	CHECK_EQUAL(lookup(&fixture, "web", 2), 0);
	CHECK_EQUAL(lookup(&fixture, "web", 1), -EMFILE); /* the file, but not the process */
	CHECK_EQUAL(lookup(&fixture, "web", 0), -EMFILE);
	end_process(&fixture);
	CHECK_EQUAL(lookup(&fixture, "web", 2), -ENOENT);
	CHECK_EQUAL(lookup(&fixture, "db", 2), -ENOENT);
	CHECK_EQUAL(lookup(&fixture, "../web", 2), -ENOENT);
	remove_all(&fixture);
}

static void check_file(const char *name, const char *file)
{
	struct fixture fixture;

	set_up(&fixture, file);
	if (lookup(&fixture, name, 2))
		FAIL_TEST("the process of '%s' is not found by %s.pid", name, file);
	if (strcmp(name, file) != 0)
		CHECK_EQUAL(lookup(&fixture, file, 2), -ENOENT); /* it would be another domain's */
	end_process(&fixture);
	remove_all(&fixture);
}

TEST(libvirt_directory, has_the_names_that_libvirt_writes)
{
	char longest[DOMAIN_NAME_SIZE + 1];
	struct fixture fixture;

	check_file("..", "..");
	check_file(".x", ".x");
	check_file("two\nlines", "two\nlines");
	check_file("\"a\" <b> & 'c' %41", "&quot;a&quot; &lt;b&gt; &amp; &apos;c&apos; %41");
	set_up(&fixture, "web");
	end_process(&fixture);
	CHECK_EQUAL(lookup(&fixture, "", 2), -ENOENT);
	memset(longest, '"', DOMAIN_NAME_SIZE);
	longest[DOMAIN_NAME_SIZE] = '\0';
	CHECK_EQUAL(lookup(&fixture, longest, 2), -ENOENT);
	remove_all(&fixture);
}
