/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All functions of a guest's stripped file, from the separate debug file of its build that is
 * installed on this machine (/usr/lib/debug/.build-id): host and guest often have libraries of the
 * same distribution. Any thread.
 */
#ifndef KVMSCOPE_SYMBOLS_INSTALLED_SYMBOLS_H
#define KVMSCOPE_SYMBOLS_INSTALLED_SYMBOLS_H

#include <stdbool.h>

#include "shared/bytes.h"
#include "shared/span.h"

/* True if there is such a file with symbols below ROOT ("": this machine). */
bool installed_symbols_exist(const char *root, struct span build_id);

/*
 * Completes TABLE, the exported functions of a stripped file (struct agent_symbols,
 * shared/agent_protocol.h), into *ALL, whose data the caller frees. False, with *ALL empty: TABLE
 * is complete or broken, or there is no such file, or its table is too large.
 */
bool installed_symbols_add(struct bytes *all, struct span table, const char *root,
			   struct span build_id);

#endif
