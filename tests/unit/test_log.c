// SPDX-License-Identifier: Apache-2.0
/* What others chose, in the log. */
#include <string.h>

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
	check_line("a\nkvmscope: all is well", "kvmscope: warning: a\n  kvmscope: all is well ends\n");
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
