/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the kvmscope program that was built with these tests. Main thread. */
#ifndef KVMSCOPE_TESTS_KVM_PROGRAM_H
#define KVMSCOPE_TESTS_KVM_PROGRAM_H

#include <sys/types.h>

struct program {
	pid_t pid;
	int output;       /* a file that receives its standard output and error */
	int status;       /* after program_wait(): exit status, or 128 + the signal */
	char text[16384]; /* after program_wait(): its output, possibly truncated */
};

/*
 * Starts it with the words of ARGUMENTS, which are separated by single spaces. '_' becomes a space
 * within a word. Its input is empty.
 */
void program_start(struct program *program, const char *arguments);

/* Waits until it has written TEXT. Returns false after 60 s, or if it ends before. */
int program_wait_for(struct program *program, const char *text);

void program_wait(struct program *program);

/* The program's path; PATH has room for PATH_MAX bytes. */
void program_path(char *path);

/* Executes the program in the calling process, with its descriptors. Does not return. */
_Noreturn void program_exec(const char *arguments);

/* Start and wait. */
void program_run(struct program *program, const char *arguments);

/* Runs it, and fails the test unless it ends with STATUS and has written TEXT. */
void program_expect(const char *arguments, int status, const char *text);

/* Runs it, and fails the test unless it rejects its arguments (status 2) with TEXT. */
void program_refuses(const char *arguments, const char *text);

/* Programs have HOME, and so the build-id cache, in DIRECTORY; NULL restores it. One at a time. */
void program_set_home(const char *directory);

#endif
