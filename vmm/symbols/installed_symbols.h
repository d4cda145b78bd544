/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of a guest's stripped file, where this machine has a separate file of its build, as
 * for libraries that host and guest have from the same distribution (/usr/lib/debug/.build-id). Any
 * thread.
 */
#ifndef KVMSCOPE_SYMBOLS_INSTALLED_SYMBOLS_H
#define KVMSCOPE_SYMBOLS_INSTALLED_SYMBOLS_H

#include <stdbool.h>

#include "shared/bytes.h"
#include "shared/span.h"

/* Is there such a file below ROOT ("": this machine's), with symbols? */
bool installed_symbols_exist(const char *root, const uint8_t *build_id, size_t build_id_size);

/*
 * TABLE, of what a stripped file exports (struct agent_symbols, shared/agent_protocol.h), with all
 * functions instead, into *ALL, whose data is the caller's to free. False, and *ALL is empty: TABLE
 * has all already, or is none, or there is no such file, or its table is too large.
 */
bool installed_symbols_add(struct bytes *all, struct span table, const char *root,
			   const uint8_t *build_id, size_t build_id_size);

#endif
