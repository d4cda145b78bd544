/* SPDX-License-Identifier: Apache-2.0 */
/* A recording is read twice: what comes through a pipe is kept in a nameless file for that. */
#ifndef KVMSCOPE_REPORT_PROFILE_INPUT_H
#define KVMSCOPE_REPORT_PROFILE_INPUT_H

struct profile_input {
	char path[32]; /* of the copy */
	int fd;        /* of the copy, -1 where none is needed */
};

/*
 * Copies PATH ("-" is standard input) if it can be read only once; waits for
 * its end. Returns the path to read from, which is PATH or INPUT's, or NULL
 * with the copy's error. In $TMPDIR, else in /var/tmp.
 */
const char *profile_input_open(struct profile_input *input, const char *path);
void profile_input_close(struct profile_input *input);

#endif
