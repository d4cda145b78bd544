/* SPDX-License-Identifier: Apache-2.0 */
/* A directory for TSC_CLOCKSOURCES, of a host whose clocks the test chooses. */
#ifndef KVMSCOPE_TESTS_UNIT_CLOCK_FILES_H
#define KVMSCOPE_TESTS_UNIT_CLOCK_FILES_H

/*
 * Writes to the existing DIRECTORY: the AVAILABLE clocks, and the CURRENT one. The test fails on
 * error.
 */
void clock_files_write(const char *directory, const char *available, const char *current);

/* Removes the files and the directory. */
void clock_files_remove(const char *directory);

#endif
