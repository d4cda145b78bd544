/* SPDX-License-Identifier: Apache-2.0 */
/* The shared library of linked.c: one exported function and one internal function. */
#include "tests/rig/guest/userland/library.h"

#include "tests/rig/guest/userland/busy.h"

BUSY_FUNCTION BUSY_SPIN(library_twist);
BUSY_FUNCTION static BUSY_SPIN(library_fold);

BUSY_FUNCTION void library_fold_all(void)
{
	BUSY_CALL(library_fold());
}
