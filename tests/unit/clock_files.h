/* SPDX-License-Identifier: Apache-2.0 */
/* A directory as TSC_CLOCKSOURCES, of a host whose clocks the test chooses. */
#ifndef KVMSCOPE_TESTS_UNIT_CLOCK_FILES_H
#define KVMSCOPE_TESTS_UNIT_CLOCK_FILES_H

/* In DIRECTORY, which is there: the clocks AVAILABLE, of which CURRENT tells the time. A failure
 * fails the test. */
void clock_files_write(const char *directory, const char *available, const char *current);

/* With the directory. */
void clock_files_remove(const char *directory);

#endif
