/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/captured_log.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

void captured_log_begin(struct captured_log *log)
{
	fflush(stderr);
	log->before = dup(STDERR_FILENO);
	log->file = memfd_create("log", MFD_CLOEXEC);
	CHECK(log->before >= 0 && log->file >= 0 && dup2(log->file, STDERR_FILENO) >= 0);
}

void captured_log_end(struct captured_log *log)
{
	ssize_t got = pread(log->file, log->text, sizeof(log->text) - 1, 0);

	log->text[got > 0 ? got : 0] = '\0';
	dup2(log->before, STDERR_FILENO);
	close(log->before);
	close(log->file);
}
