/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the kvmscope program that was built with these tests. Main thread. */
#ifndef KVMSCOPE_TESTS_KVM_PROGRAM_H
#define KVMSCOPE_TESTS_KVM_PROGRAM_H

#include <sys/types.h>

struct program {
	pid_t pid;
	int output;       /* a file with its standard output and error, from the start */
	int status;       /* after program_wait(): exit status, or 128 + the signal */
	char text[16384]; /* after program_wait(): what it wrote, as much as fits */
};

/*
 * Starts it with the words of ARGUMENTS, which single spaces separate and '_'
 * stands for a space in; its input is empty.
 */
void program_start(struct program *program, const char *arguments);

/* Waits until it has written TEXT; false after 60 s, or when it has ended without. */
int program_wait_for(struct program *program, const char *text);

void program_wait(struct program *program);

/* Where it is; PATH has room for PATH_MAX bytes. */
void program_path(char *path);

/* The child's part of that: becomes the program, with the descriptors that it has. Does not return.
 */
_Noreturn void program_exec(const char *arguments);

/* Start and wait. */
void program_run(struct program *program, const char *arguments);

/* Runs it, and fails the test unless it refuses its arguments (status 2) with TEXT. */
void program_refuses(const char *arguments, const char *text);

#endif
