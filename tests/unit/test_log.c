// SPDX-License-Identifier: Apache-2.0
/* What others chose, in the log. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/log.h"
#include "tests/unit/shim/test.h"

/* What is written to standard error between the two. */
static int begin_capture(int *file)
{
	int before = dup(STDERR_FILENO);

	fflush(stderr);
	*file = memfd_create("log", MFD_CLOEXEC);
	CHECK(before >= 0 && *file >= 0 && dup2(*file, STDERR_FILENO) >= 0);
	return before;
}

static void end_capture(int before, int file, char *text, size_t size)
{
	ssize_t got = pread(file, text, size - 1, 0);

	text[got > 0 ? got : 0] = '\0';
	dup2(before, STDERR_FILENO);
	close(before);
	close(file);
}

static void check_line(const char *chosen, const char *expected)
{
	char text[8192];
	int file, before = begin_capture(&file);

	log_warning("%s ends", chosen);
	end_capture(before, file, text, sizeof(text));
	CHECK_STRING(text, expected);
}

TEST(log, what_others_chose_is_text)
{
	check_line("web", "kvmscope: warning: web ends\n");
	check_line("b\xc3\xbcro 100%s\t\\n", "kvmscope: warning: b\xc3\xbcro 100%s\t\\n ends\n");
	check_line("\033[31mred\r\x7f", "kvmscope: warning: ?[31mred?? ends\n");
	check_line("\xc2\x9b"
		   "31mred\xc2\xa0",
		   "kvmscope: warning: ?31mred\xc2\xa0 ends\n");
	check_line("\xc2", "kvmscope: warning: \xc2 ends\n");
}

TEST(log, another_line_of_a_message_is_no_other_message)
{
	check_line("a\nkvmscope: all is well", "kvmscope: warning: a\n  kvmscope: all is well ends\n");
	log_levels(true);
	check_line("a\n<0>panic", "<4>kvmscope: warning: a\n<4>  <0>panic ends\n");
	log_levels(false);
}

TEST(log, a_line_that_is_too_long_is_cut)
{
	char chosen[5000], text[8192];
	int file, before;

	memset(chosen, '\n', sizeof(chosen) - 1);
	chosen[sizeof(chosen) - 1] = '\0';
	before = begin_capture(&file);
	log_levels(true);
	log_warning("%s", chosen);
	log_levels(false);
	end_capture(before, file, text, sizeof(text));
	CHECK(strlen(text) > 2000 && strlen(text) < sizeof(chosen));
	CHECK_EQUAL(text[strlen(text) - 1], '\n');
	CHECK(strstr(text, "warning: \n<4>  \n<4>  "));
}
