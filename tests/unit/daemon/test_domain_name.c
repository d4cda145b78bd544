/* SPDX-License-Identifier: Apache-2.0 */
/* Domain names as file names, chosen by an attacker. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/daemon/domain_name.h"

static void check_file(const char *name, const char *expected)
{
	char file[DOMAIN_FILE_SIZE], again[DOMAIN_FILE_SIZE];

	domain_name_escape(name, file);
	CHECK_STRING(file, expected);
	CHECK_EQUAL(domain_name_unescape(file, again), 0);
	CHECK_STRING(again, name);
}

TEST(domain_name, becomes_one_file_name_and_comes_back)
{
	check_file("web-1_a.example", "web-1_a.example");
	check_file("", "%");
	check_file(".", "%2E");
	check_file("..", "%2E.");
	check_file("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd");
	check_file("/", "%2F");
	check_file("two\nlines\x1b[31m", "two%0Alines%1B%5B31m");
	check_file("100%", "100%25");
	check_file("%41", "%2541");
	check_file("b\xc3\xbcro", "b%C3%BCro");
	check_file("not UTF-8: \xff\xfe", "not%20UTF-8%3A%20%FF%FE");
	check_file("-rf", "-rf");
	check_file("a,b}=\"c\"", "a%2Cb%7D%3D%22c%22");
}

TEST(domain_name, of_a_thousand_bytes_has_a_file_of_its_own)
{
	char name[1001], file[DOMAIN_FILE_SIZE], other[DOMAIN_FILE_SIZE];

	memset(name, '/', sizeof(name) - 1);
	name[1000] = '\0';
	domain_name_escape(name, file);
	CHECK(strlen(file) <= DOMAIN_FILE_MAX);
	CHECK_EQUAL(strncmp(file, "%2F%2F%2F", 9), 0);
	CHECK(!strchr(file, '/'));
	CHECK_EQUAL(domain_name_unescape(file, other), -ENAMETOOLONG);
	name[999] = '.';
	domain_name_escape(name, other);
	CHECK(strcmp(file, other) != 0);
	/* No short name leads to the same file. */
	domain_name_escape(file, other);
	CHECK(strcmp(file, other) != 0);
}

TEST(domain_name, is_cut_only_where_it_must_be)
{
	char name[DOMAIN_FILE_SIZE + 1], file[DOMAIN_FILE_SIZE], again[DOMAIN_FILE_SIZE];

	memset(name, 'x', DOMAIN_FILE_MAX);
	name[DOMAIN_FILE_MAX] = '\0';
	check_file(name, name);
	strcpy(name + DOMAIN_FILE_MAX, "x");
	domain_name_escape(name, file);
	CHECK_EQUAL(strlen(file), DOMAIN_FILE_MAX);
	CHECK_EQUAL(domain_name_unescape(file, again), -ENAMETOOLONG);
	/* Escapes are not cut in two. */
	memset(name, '/', 67);
	name[67] = '\0';
	domain_name_escape(name, file);
	CHECK_STRING(strstr(file, "%-") - 3, strstr(file, "%2F%-"));
}

TEST(domain_name, is_read_from_nothing_else)
{
	static const char *const files[] = { "",    "%2",  "%2f", "%zz", "a/b", ".",  "..",   "%%",
					     "a b", "%41", "%00", "%",   "a%",  "%-", "x%-ab" };
	char long_file[DOMAIN_FILE_SIZE + 1], name[DOMAIN_FILE_SIZE];

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (strcmp(files[i], "%") != 0 && !domain_name_unescape(files[i], name))
			FAIL_TEST("\"%s\" is taken for the file of \"%s\"", files[i], name);
	memset(long_file, 'x', DOMAIN_FILE_SIZE);
	long_file[DOMAIN_FILE_SIZE] = '\0';
	CHECK_EQUAL(domain_name_unescape(long_file, name), -EINVAL);
}
