/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs Debian's perf in a private home directory, which includes the build-id cache. Main thread.
 */
#ifndef KVMSCOPE_TESTS_E2E_PERF_HOME_H
#define KVMSCOPE_TESTS_E2E_PERF_HOME_H

#include <stdbool.h>

/* Runs a shell command; the caller frees its output. */
char *perf_output(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool perf_runs(void);

/* Creates a directory and makes it HOME; the second function restores HOME and removes it. */
void perf_home_enter(char home[64]);
void perf_home_leave(const char *home);

#define NEED_PERF                                                                                  \
	do {                                                                                       \
		if (!perf_runs())                                                                  \
			SKIP("perf (package linux-perf) does not run here");                       \
	} while (0)

#endif
