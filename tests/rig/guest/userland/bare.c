/* SPDX-License-Identifier: Apache-2.0 */
/* bare CALLS MILLISECONDS: C without frame pointers, through frames of several kinds and the C
 * library. */
#include <stdlib.h>

#include "tests/rig/guest/userland/busy.h"

BUSY_FUNCTION static BUSY_SPIN(bare_spin);
BUSY_FUNCTION static BUSY_SPIN(bare_compare_spin);

BUSY_FUNCTION static void bare_large(int n)
{
	volatile char bytes[600];

	bytes[n] = 1;
	BUSY_CALL(bare_spin());
	(void)bytes[n];
}

BUSY_FUNCTION static void bare_variable(int n)
{
	volatile char *bytes = __builtin_alloca((size_t)n * 16);

	bytes[n] = 1;
	BUSY_CALL(bare_large(n));
	(void)bytes[n];
}

BUSY_FUNCTION static void run_frames(void)
{
	BUSY_CALL(bare_variable(20));
}

BUSY_FUNCTION static int bare_compare(const void *left, const void *right)
{
	BUSY_CALL(bare_compare_spin());
	return *(const int *)left - *(const int *)right;
}

BUSY_FUNCTION static void run_sort(void)
{
	int numbers[] = {
		3, 2, 1
	}; /* three comparisons, with the library's current and former algorithms */

	BUSY_CALL(qsort(numbers, 3, sizeof(int), bare_compare));
}

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "bare_spin", run_frames, 27, 1 },
					     { "bare_compare_spin", run_sort, 1, 3 },
					     { NULL, NULL, 0, 0 } };

	BUSY_CALL(busy_run("bare", tasks, argc, argv));
	return 0;
}
