/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/hash.h"

#include <stdlib.h>

uint64_t hash_key[2];

/* Before main(), so that no reader has to check for a key. */
__attribute__((constructor)) static void choose_key(void)
{
	arc4random_buf(hash_key, sizeof(hash_key));
}
