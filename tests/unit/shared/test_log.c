/* SPDX-License-Identifier: Apache-2.0 */
/* What others chose, in the log. */
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "shared/log.h"
#include "tests/unit/captured_log.h"
#include "tests/unit/shim/test.h"

static void check_line(const char *chosen, const char *expected)
{
	struct captured_log log;

	captured_log_begin(&log);
	log_warning("%s ends", chosen);
	captured_log_end(&log);
	CHECK_STRING(log.text, expected);
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
	check_line("a\nkvmscope: all is well",
		   "kvmscope: warning: a\n  kvmscope: all is well ends\n");
	log_levels(true);
	check_line("a\n<0>panic", "<4>kvmscope: warning: a\n<4>  <0>panic ends\n");
	log_levels(false);
}

TEST(log, a_line_that_is_too_long_is_cut)
{
	char chosen[5000];
	struct captured_log log;

	memset(chosen, '\n', sizeof(chosen) - 1);
	chosen[sizeof(chosen) - 1] = '\0';
	captured_log_begin(&log);
	log_levels(true);
	log_warning("%s", chosen);
	log_levels(false);
	captured_log_end(&log);
	CHECK(strlen(log.text) > 2000 && strlen(log.text) < sizeof(chosen));
	CHECK_EQUAL(log.text[strlen(log.text) - 1], '\n');
	CHECK(strstr(log.text, "warning: \n<4>  \n<4>  "));
}

/* Everything that was sent to the terminal, whose other end is closed; it arrives in parts. */
static void read_terminal(int user, char text[256])
{
	size_t length = 0;
	ssize_t part;

	while ((part = read(user, text + length, 255 - length)) > 0)
		length += (size_t)part;
	text[length] = '\0';
}

/* A terminal of COLUMNS as standard error meanwhile; TEXT gets what is sent to it. */
static void show_progress(unsigned short columns, char text[256])
{
	const struct winsize size = { .ws_row = 24, .ws_col = columns };
	int before = dup(STDERR_FILENO), user, terminal;

	REQUIRE_EQUAL(openpty(&user, &terminal, NULL, NULL, &size), 0);
	dup2(terminal, STDERR_FILENO);
	log_progress("1:02: %d samples, %d lost, Linux %s", 12345, 678, "6.1");
	log_progress("%s", "");
	dup2(before, STDERR_FILENO);
	close(before);
	close(terminal);
	read_terminal(user, text);
	close(user);
}

/* Else each second leaves a line on the terminal. */
TEST(log, progress_is_cut_to_the_terminal_and_no_number_is)
{
	static const struct {
		unsigned short columns;
		const char *shown;
	} terminals[] = {
		{ 80, "1:02: 12345 samples, 678 lost, Linux 6.1" },
		{ 41, "1:02: 12345 samples, 678 lost, Linux 6.1" },
		{ 40, "1:02: 12345 samples, 678 lost" },
		{ 27, "1:02: 12345 samples" },
		{ 10, "" },
		{ 0, "1:02: 12345 samples, 678 lost, Linux 6.1" },
	};

	for (size_t i = 0; i < sizeof(terminals) / sizeof(terminals[0]); i++) {
		char text[256], expected[256];

		show_progress(terminals[i].columns, text);
		snprintf(expected, sizeof(expected), "\r\033[K%s%s\r\033[K", terminals[i].shown,
			 *terminals[i].shown ? "\r\033[K" : "");
		CHECK_STRING(text, expected);
	}
}
