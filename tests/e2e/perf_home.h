/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's perf as tests run it: in a home directory, and so a build-id cache, of the test's own.
 * Main thread. */
#ifndef KVMSCOPE_TESTS_E2E_PERF_HOME_H
#define KVMSCOPE_TESTS_E2E_PERF_HOME_H

#include <stdbool.h>

/* Runs a shell command; what it prints is the caller's to free. */
char *perf_output(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool perf_runs(void);

/* Makes a directory that is HOME until it is left, with all that is in it. */
void perf_home_enter(char home[64]);
void perf_home_leave(const char *home);

#define NEED_PERF                                                                                  \
	do {                                                                                       \
		if (!perf_runs())                                                                  \
			SKIP("perf (package linux-perf) does not run here");                       \
	} while (0)

#endif
