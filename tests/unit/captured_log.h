/* SPDX-License-Identifier: Apache-2.0 */
/* What is written to standard error meanwhile, by whatever thread of this process. Main thread. */
#ifndef KVMSCOPE_TESTS_UNIT_CAPTURED_LOG_H
#define KVMSCOPE_TESTS_UNIT_CAPTURED_LOG_H

struct captured_log {
	int before, file;
	char text[8192]; /* after captured_log_end(): as much as fits */
};

void captured_log_begin(struct captured_log *log);
void captured_log_end(struct captured_log *log);

#endif
