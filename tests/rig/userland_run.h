/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs of tests/rig/guest-userland in a debian_recording(), which run twice in each guest:
 * with nothing in the guest, and with the agent.
 */
#ifndef KVMSCOPE_TESTS_RIG_USERLAND_RUN_H
#define KVMSCOPE_TESTS_RIG_USERLAND_RUN_H

#include <stdbool.h>

/* Minimum of samples on a machine that stalls most of the time. */
#define USERLAND_ENOUGH 400

/* The module that the program "hashed" works in. */
#define USERLAND_MODULE "[rmd160]"

/* The functions that the programs are busy in, and the file that each is in. */
#define USERLAND_FUNCTIONS 13
extern const struct userland_function {
	const char *process, *symbol, *image;
} userland_functions[USERLAND_FUNCTIONS];

#define USERLAND_PROCESSES 9
extern const char *const userland_processes[USERLAND_PROCESSES];

/* The results for one of the two runs of the user land. */
struct userland_run {
	const char *what;
	char directory[64], file[96];
	const char *output;
	unsigned int agent_from; /* the process ID with which the second run begins */
	bool with_agent;
};

/* False: the recording could not be made, and the test has failed. */
bool userland_run_open(struct userland_run *run, const char *version, bool with_agent);

/* Samples without a known task have an impossible process ID: they may be of either run. */
bool userland_run_has(const struct userland_run *run, const char *comm, unsigned int tid);

bool userland_is_process(const char *comm);

/* The index in userland_functions; -1: none of them. */
int userland_function_of(const char *symbol);

#endif
