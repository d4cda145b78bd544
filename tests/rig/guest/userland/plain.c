/* SPDX-License-Identifier: Apache-2.0 */
/* plain CALLS MILLISECONDS: C with frame pointers. */
#include <stddef.h>

#include "tests/rig/guest/userland/busy.h"

BUSY_FUNCTION static BUSY_SPIN(plain_add);
BUSY_FUNCTION static BUSY_SPIN(plain_count);

BUSY_FUNCTION static void plain_outer(void)
{
	BUSY_CALL(plain_add());
}

BUSY_FUNCTION static void run_add(void)
{
	BUSY_CALL(plain_outer());
}

BUSY_FUNCTION static void run_count(void)
{
	BUSY_CALL(plain_count());
}

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "plain_add", run_add, 9, 1 },
					     { "plain_count", run_count, 1, 1 },
					     { NULL, NULL, 0, 0 } };

	BUSY_CALL(busy_run("plain", tasks, argc, argv));
	return 0;
}
