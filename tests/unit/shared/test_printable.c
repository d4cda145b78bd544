/* SPDX-License-Identifier: Apache-2.0 */
/* What is not passed on to a terminal. */
#include "shared/printable.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/cli/screen.h"

TEST(control_character_size, is_of_one_byte_or_of_two)
{
	CHECK_EQUAL(control_character_size("\033[31m"), 1);
	CHECK_EQUAL(control_character_size("\n"), 1);
	CHECK_EQUAL(control_character_size("\t"), 1);
	CHECK_EQUAL(control_character_size("\x7f"), 1);
	CHECK_EQUAL(control_character_size("\xc2\x80"), 2);
	CHECK_EQUAL(control_character_size("\xc2\x9b"
					   "31m"),
		    2);
}

TEST(control_character_size, others_are_text)
{
	CHECK_EQUAL(control_character_size(""), 0);
	CHECK_EQUAL(control_character_size(" "), 0);
	CHECK_EQUAL(control_character_size("\xc2"), 0);
	CHECK_EQUAL(control_character_size("\xc2\xa0"), 0);
	CHECK_EQUAL(control_character_size("\xc3\x9b"), 0);
	CHECK_EQUAL(control_character_size("\xe2\x82\xac"), 0);
}

/* A guest chooses what its kernel is called, and its programs. */
TEST(control_character_size, in_an_answer_is_shown_and_not_obeyed)
{
	int before = dup(STDOUT_FILENO), file = memfd_create("answer", MFD_CLOEXEC);
	char text[64] = "";

	fflush(stdout);
	CHECK(before >= 0 && file >= 0 && dup2(file, STDOUT_FILENO) >= 0);
	screen_print("6.1\033[2J\xc2\x9b"
		     "31m\nb\xc3\xbcro\x7f");
	fflush(stdout);
	dup2(before, STDOUT_FILENO);
	CHECK(pread(file, text, sizeof(text) - 1, 0) > 0);
	CHECK_STRING(text, "6.1?[2J?31m?b\xc3\xbcro?");
	close(before);
	close(file);
}
