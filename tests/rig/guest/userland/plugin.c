/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-ins of plugins.c: FUNCTION is the name of each. */
#include "tests/rig/guest/userland/busy.h"

void FUNCTION(void);

BUSY_FUNCTION BUSY_SPIN(FUNCTION);
