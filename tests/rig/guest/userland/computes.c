/* SPDX-License-Identifier: Apache-2.0 */
/*
 * computes CALLS MILLISECONDS: 24 call paths to two loops, from four callers of three callers of
 * both, through several kinds of frames without frame pointers. A round passes NUMBER times through
 * each caller, once through first_by_1 and four times through fourth_by_4, and so on for their
 * callees: the shares of the paths are the products.
 */
#include <stddef.h>

#include "tests/rig/guest/userland/busy.h"

BUSY_FUNCTION static BUSY_SPIN(spin_by_1);
BUSY_FUNCTION static BUSY_SPIN(spin_by_3);

BUSY_FUNCTION static void spin(void)
{
	BUSY_CALL(spin_by_1());
	for (int i = 0; i < 3; i++)
		BUSY_CALL(spin_by_3());
}

BUSY_FUNCTION static void large_by_1(int n)
{
	volatile char bytes[200];

	bytes[n] = 1;
	BUSY_CALL(spin());
	(void)bytes[n];
}

BUSY_FUNCTION static void variable_by_2(int n)
{
	volatile char *bytes = __builtin_alloca((size_t)n * 16);

	bytes[n] = 1;
	BUSY_CALL(spin());
	(void)bytes[n];
}

BUSY_FUNCTION static void aligned_by_3(int n)
{
	volatile char bytes[64] __attribute__((aligned(64)));

	bytes[n] = 1;
	BUSY_CALL(spin());
	(void)bytes[n];
}

#define CALLER(name, times)                                                                        \
	BUSY_FUNCTION static void name(void)                                                       \
	{                                                                                          \
		for (int i = 0; i < (times); i++) {                                                \
			BUSY_CALL(large_by_1(7));                                                  \
			for (int j = 0; j < 2; j++)                                                \
				BUSY_CALL(variable_by_2(7));                                       \
			for (int j = 0; j < 3; j++)                                                \
				BUSY_CALL(aligned_by_3(7));                                        \
		}                                                                                  \
	}

CALLER(first_by_1, 1)
CALLER(second_by_2, 2)
CALLER(third_by_3, 3)
CALLER(fourth_by_4, 4)

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "first_by_1", first_by_1, 1, 24 },
					     { "second_by_2", second_by_2, 1, 48 },
					     { "third_by_3", third_by_3, 1, 72 },
					     { "fourth_by_4", fourth_by_4, 1, 96 },
					     { NULL, NULL, 0, 0 } };

	BUSY_CALL(busy_run("computes", tasks, argc, argv));
	return 0;
}
