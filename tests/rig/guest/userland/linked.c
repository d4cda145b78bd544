/* SPDX-License-Identifier: Apache-2.0 */
/* linked CALLS MILLISECONDS: works in a shared library. */
#include "tests/rig/guest/userland/library.h"

#include <stddef.h>

#include "tests/rig/guest/userland/busy.h"

BUSY_FUNCTION static void run_twist(void)
{
	BUSY_CALL(library_twist());
}

BUSY_FUNCTION static void run_fold(void)
{
	BUSY_CALL(library_fold_all());
}

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "library_twist", run_twist, 9, 1 },
					     { "library_fold", run_fold, 1, 1 },
					     { NULL, NULL, 0, 0 } };

	BUSY_CALL(busy_run("linked", tasks, argc, argv));
	return 0;
}
