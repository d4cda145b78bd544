/* SPDX-License-Identifier: Apache-2.0 */
/* Captures what any thread of this process writes to standard error. Main thread. */
#ifndef KVMSCOPE_TESTS_UNIT_CAPTURED_LOG_H
#define KVMSCOPE_TESTS_UNIT_CAPTURED_LOG_H

struct captured_log {
	int before, file;
	char text[8192]; /* valid after captured_log_end(); possibly truncated */
};

void captured_log_begin(struct captured_log *log);
void captured_log_end(struct captured_log *log);

#endif
