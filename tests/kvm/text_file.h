/* SPDX-License-Identifier: Apache-2.0 */
/* Files of text that tests of services need. Any thread. */
#ifndef KVMSCOPE_TESTS_KVM_TEXT_FILE_H
#define KVMSCOPE_TESTS_KVM_TEXT_FILE_H

/* Makes the file NAME below DIRECTORY, or writes it anew, with what FORMAT makes; a failed check
 * else. */
void text_file_write(const char *directory, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
