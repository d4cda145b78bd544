/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugins CALLS MILLISECONDS: loads a plug-in, works in it, unloads it; the next one is usually
 * mapped at the same address.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rig/guest/userland/busy.h"

/*
 * Some ms, comparable to the time for loading a plug-in; with longer turns there would be few of
 * them.
 */
#define LEFT_CALLS  450
#define RIGHT_CALLS 50

static void work_in(const char *path, const char *function, int calls)
{
	void *plugin = dlopen(path, RTLD_NOW);
	void *symbol = plugin ? dlsym(plugin, function) : NULL;
	void (*spin)(void);

	if (!symbol) {
		fprintf(stderr, "plugins: %s\n", dlerror());
		exit(1);
	}
	memcpy(&spin, &symbol, sizeof(spin));
	for (int i = 0; i < calls; i++)
		spin();
	dlclose(plugin);
}

BUSY_FUNCTION static void run_left(void)
{
	BUSY_CALL(work_in("/mnt/bin/left.so", "left_spin", LEFT_CALLS));
}

BUSY_FUNCTION static void run_right(void)
{
	BUSY_CALL(work_in("/mnt/bin/right.so", "right_spin", RIGHT_CALLS));
}

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "left_spin", run_left, 1, LEFT_CALLS },
					     { "right_spin", run_right, 1, RIGHT_CALLS },
					     { NULL, NULL, 0, 0 } };

	BUSY_CALL(busy_run("plugins", tasks, argc, argv));
	return 0;
}
