/* SPDX-License-Identifier: Apache-2.0 */
/* Which watch of a run a user means. */
#ifndef KVMSCOPE_CLI_RUN_WATCH_FIND_H
#define KVMSCOPE_CLI_RUN_WATCH_FIND_H

#include "vmm/cli/run_watch.h"

/*
 * The number of the one watch that TEXT means, of those that were not removed: by that number in
 * decimal (which then need not be one), by the name of its event, or by what was given to add it;
 * where several watch the same place, with all its options. -ENOENT and -EINVAL with what there is.
 * Any thread, as run_watch_describe().
 */
int run_watch_find(struct run_watch *watch, const char *text);

#endif
