/* SPDX-License-Identifier: Apache-2.0 */
/* A private debuginfod server for tests. Main thread. */
#ifndef KVMSCOPE_TESTS_E2E_DEBUGINFOD_SERVER_H
#define KVMSCOPE_TESTS_E2E_DEBUGINFOD_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#include "tests/unit/shim/test.h"

struct debuginfod_server {
	char home[64]; /* the test's home: perf_home_enter() */
	int port;
	pid_t pid;
};

bool debuginfod_server_runs(void);

/*
 * Serves the files below HOME/files at http://127.0.0.1:PORT. The server needs a moment until it
 * listens and has indexed them.
 */
void debuginfod_server_start(struct debuginfod_server *server);
void debuginfod_server_stop(const struct debuginfod_server *server);

#define NEED_DEBUGINFOD                                                                            \
	do {                                                                                       \
		if (!debuginfod_server_runs())                                                     \
			SKIP("debuginfod (package debuginfod) does not run here");                 \
	} while (0)

#endif
