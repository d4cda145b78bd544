/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests in C on googletest: TEST(suite, name) { ... } registers a body. The only C++ is in shim.cc.
 * Suites are named after what they test.
 *
 * CHECK_* record a failure and continue; REQUIRE_* also return from the function. SKIP(reason...)
 * ends the test as skipped with the reason.
 *
 * A test may take 300 s, one in tests/rig or tests/e2e 1200 s (the environment's
 * KVMSCOPE_TEST_SECONDS overrides both, 0: no limit). After that the program prints the test's name
 * and exits with status 3.
 */
#ifndef KVMSCOPE_TESTS_UNIT_SHIM_TEST_H
#define KVMSCOPE_TESTS_UNIT_SHIM_TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void test_body(void);

void test_register(const char *suite, const char *name, const char *file, int line,
		   test_body *body);
void test_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void test_skip(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif

#define TEST(suite, name)                                                                          \
	static void test_##suite##_##name(void);                                                   \
	__attribute__((constructor)) static void register_##suite##_##name(void)                   \
	{                                                                                          \
		test_register(#suite, #name, __FILE__, __LINE__, test_##suite##_##name);           \
	}                                                                                          \
	static void test_##suite##_##name(void)

#define FAIL_TEST(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...)                                                                                  \
	do {                                                                                       \
		test_skip(__FILE__, __LINE__, __VA_ARGS__);                                        \
		return;                                                                            \
	} while (0)

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			FAIL_TEST("not true: %s", #condition);                                     \
	} while (0)
#define REQUIRE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			FAIL_TEST("not true: %s", #condition);                                     \
			return;                                                                    \
		}                                                                                  \
	} while (0)

/*
 * Defines NAME of TYPE, set up by MAKE(&NAME, ...). DESTROY(&NAME) runs when the test ends, also
 * after a failed REQUIRE.
 */
#define FIXTURE(type, name, make, destroy, ...)                                                    \
	type name __attribute__((cleanup(destroy)));                                               \
	make(&name, ##__VA_ARGS__)

#define CHECK_EQUAL(actual, expected)                                                              \
	do {                                                                                       \
		long long check_actual = (long long)(actual);                                      \
		long long check_expected = (long long)(expected);                                  \
                                                                                                   \
		if (check_actual != check_expected)                                                \
			FAIL_TEST("%s is %lld (%#llx), expected %lld (%#llx)", #actual,            \
				  check_actual, (unsigned long long)check_actual, check_expected,  \
				  (unsigned long long)check_expected);                             \
	} while (0)
#define REQUIRE_EQUAL(actual, expected)                                                            \
	do {                                                                                       \
		long long require_actual = (long long)(actual);                                    \
		long long require_expected = (long long)(expected);                                \
                                                                                                   \
		if (require_actual != require_expected) {                                          \
			FAIL_TEST("%s is %lld (%#llx), expected %lld (%#llx)", #actual,            \
				  require_actual, (unsigned long long)require_actual,              \
				  require_expected, (unsigned long long)require_expected);         \
			return;                                                                    \
		}                                                                                  \
	} while (0)
#define CHECK_STRING(actual, expected)                                                             \
	do {                                                                                       \
		const char *check_actual = (actual);                                               \
		const char *check_expected = (expected);                                           \
                                                                                                   \
		if (!check_actual || strcmp(check_actual, check_expected))                         \
			FAIL_TEST("%s is \"%s\", expected \"%s\"", #actual,                        \
				  check_actual ? check_actual : "(null)", check_expected);         \
	} while (0)

#endif
