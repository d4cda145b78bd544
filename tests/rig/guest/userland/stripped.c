/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stripped CALLS MILLISECONDS: a program whose functions can only be symbolized with its separate
 * debug file. Three quarters of the steps of stripped_spin() are in add_often(), the others in
 * add_seldom(); both are inlined.
 */
#include <stddef.h>

#include "tests/rig/guest/userland/busy.h"

#define INLINED static inline __attribute__((always_inline))

INLINED void add_often(volatile unsigned long *sum)
{
	for (unsigned long i = 0; i < BUSY_STEPS * 3 / 4; i++)
		*sum += i;
}

INLINED void add_seldom(volatile unsigned long *sum)
{
	for (unsigned long i = 0; i < BUSY_STEPS / 4; i++)
		*sum += i;
}

BUSY_FUNCTION static void stripped_spin(void)
{
	static volatile unsigned long sum;

	add_often(&sum);
	add_seldom(&sum);
}

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "stripped_spin", stripped_spin, 10, 1 },
					     { NULL, NULL, 0, 0 } };

	BUSY_CALL(busy_run("stripped", tasks, argc, argv));
	return 0;
}
