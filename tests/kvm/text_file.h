/* SPDX-License-Identifier: Apache-2.0 */
/* Text files for tests of services. Any thread. */
#ifndef KVMSCOPE_TESTS_KVM_TEXT_FILE_H
#define KVMSCOPE_TESTS_KVM_TEXT_FILE_H

/*
 * Creates or replaces the file NAME below DIRECTORY with the formatted text. The check fails on
 * error.
 */
void text_file_write(const char *directory, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
