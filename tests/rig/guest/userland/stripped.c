/* SPDX-License-Identifier: Apache-2.0 */
/* stripped CALLS MILLISECONDS: a program whose functions nobody can name. */
#include <stddef.h>

#include "tests/rig/guest/userland/busy.h"

BUSY_FUNCTION static BUSY_SPIN(stripped_spin);

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "stripped_spin", stripped_spin, 10, 1 },
					     { NULL, NULL, 0, 0 } };

	BUSY_CALL(busy_run("stripped", tasks, argc, argv));
	return 0;
}
