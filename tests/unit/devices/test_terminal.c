/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/devices/terminal.h"

struct fixture {
	int master, slave;
	struct termios before;
	int quits;
};

static void count_quit(void *context)
{
	((struct fixture *)context)->quits++;
}

static bool setup(struct fixture *fixture)
{
	*fixture = (struct fixture){ 0 };
	fixture->master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
	if (fixture->master < 0 || grantpt(fixture->master) || unlockpt(fixture->master))
		return false;
	fixture->slave = open(ptsname(fixture->master), O_RDWR | O_NOCTTY);
	return fixture->slave >= 0 && !tcgetattr(fixture->slave, &fixture->before);
}

static void teardown(struct fixture *fixture)
{
	close(fixture->slave);
	close(fixture->master);
}

static bool is_raw(struct fixture *fixture)
{
	struct termios now;

	return !tcgetattr(fixture->slave, &now) && !(now.c_lflag & (ICANON | ECHO | ISIG)) &&
	       now.c_oflag == fixture->before.c_oflag;
}

static bool is_as_before(struct fixture *fixture)
{
	struct termios now;

	return !tcgetattr(fixture->slave, &now) && now.c_lflag == fixture->before.c_lflag &&
	       now.c_iflag == fixture->before.c_iflag && now.c_cflag == fixture->before.c_cflag;
}

TEST(terminal, is_raw_and_restored)
{
	struct fixture fixture;
	struct terminal *terminal, *second;

	REQUIRE(setup(&fixture));
	REQUIRE_EQUAL(terminal_create(&terminal, fixture.slave, count_quit, &fixture), 0);
	CHECK(is_raw(&fixture));
	CHECK_EQUAL(terminal_create(&second, fixture.slave, count_quit, &fixture), -EBUSY);
	terminal_destroy(terminal);
	CHECK(is_as_before(&fixture));
	terminal_destroy(NULL);
	teardown(&fixture);
}

TEST(terminal, refuses_other_files)
{
	struct terminal *terminal;
	int fd = open("/dev/null", O_RDWR);

	CHECK_EQUAL(terminal_create(&terminal, fd, NULL, NULL), -ENOTTY);
	CHECK(!terminal);
	close(fd);
}

static size_t filter(struct terminal *terminal, const char *keys, char *left)
{
	size_t size = strlen(keys), kept;

	memcpy(left, keys, size);
	kept = terminal_filter(terminal, (uint8_t *)left, size);
	left[kept] = '\0';
	return kept;
}

TEST(terminal, knows_its_escape_keys)
{
	struct fixture fixture;
	struct terminal *terminal;
	char left[32], help[512] = "";

	REQUIRE(setup(&fixture));
	REQUIRE_EQUAL(terminal_create(&terminal, fixture.slave, count_quit, &fixture), 0);
	filter(terminal, "ls\r\003", left);
	CHECK_STRING(left, "ls\r\003"); /* Ctrl-C is the guest's */
	filter(terminal, "a\001\001b\001", left);
	CHECK_STRING(left, "a\001b");
	CHECK_EQUAL(fixture.quits, 0);
	filter(terminal, "xx", left); /* the escape key was in the previous bytes */
	CHECK_STRING(left, "x");
	CHECK_EQUAL(fixture.quits, 1);
	filter(terminal, "\001qz", left);
	CHECK_STRING(left, "z");
	filter(terminal, "\001h", left);
	CHECK_STRING(left, "");
	CHECK(read(fixture.master, help, sizeof(help) - 1) > 0);
	CHECK(strstr(help, "Ctrl-A x"));
	terminal_destroy(terminal);
	teardown(&fixture);
}

/* In a child: it must leave the terminal as it was. */
static int leave_by(struct fixture *fixture, int signal_number)
{
	struct terminal *terminal;
	pid_t child = fork();
	int status;

	if (!child) {
		signal(signal_number ? signal_number : SIGTERM, SIG_DFL);
		if (terminal_create(&terminal, fixture->slave, count_quit, fixture) ||
		    !is_raw(fixture))
			_exit(99);
		if (signal_number)
			raise(signal_number);
		exit(7);
	}
	return waitpid(child, &status, 0) == child ? status : -1;
}

TEST(terminal, is_restored_at_exit_and_by_signals)
{
	struct fixture fixture;
	int status;

	REQUIRE(setup(&fixture));
	status = leave_by(&fixture, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	CHECK(is_as_before(&fixture));
	status = leave_by(&fixture, SIGTERM);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	CHECK(is_as_before(&fixture));
	status = leave_by(&fixture, SIGINT);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
	CHECK(is_as_before(&fixture));
	teardown(&fixture);
}
