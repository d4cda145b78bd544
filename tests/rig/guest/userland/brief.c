/* SPDX-License-Identifier: Apache-2.0 */
/* brief: some 20 ms of work. */
#include "tests/rig/guest/userland/busy.h"

BUSY_FUNCTION static BUSY_SPIN(brief_spin);

int main(void)
{
	for (int i = 0; i < BUSY_BRIEF_CALLS; i++)
		BUSY_CALL(brief_spin());
	return 0;
}
