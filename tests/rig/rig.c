/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/rig.h"
#include "shared/unconst.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RIG_TIMED_OUT = 124, RIG_FAILED = 125 };

/* The whole FILE, terminated by '\0'. */
static char *read_all(FILE *file)
{
	size_t size = 0, capacity = 4096;
	char *text = malloc(capacity);

	rewind(file);
	while (text) {
		size_t got = fread(text + size, 1, capacity - size - 1, file);

		if (!got)
			break;
		size += got;
		if (capacity - size < 2)
			text = realloc(text, capacity *= 2);
	}
	if (!text)
		abort();
	text[size] = '\0';
	return text;
}

static int wait_status(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return RIG_FAILED;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_program(const char *const arguments[], FILE *output, FILE *errors)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child < 0)
		return RIG_FAILED;
	if (!child) {
		dup2(fileno(output), STDOUT_FILENO);
		dup2(fileno(errors), STDERR_FILENO);
		execv(arguments[0], unconst(arguments));
		_exit(RIG_FAILED);
	}
	return wait_status(child);
}

static void run_and_keep(struct rig_result *result, const char *const arguments[])
{
	FILE *output = tmpfile(), *errors = tmpfile();

	if (!output || !errors)
		abort();
	result->status = run_program(arguments, output, errors);
	result->output = read_all(output);
	result->errors = read_all(errors);
	fclose(output);
	fclose(errors);
}

/*
 * A fault of the emulator, see tests/rig/rig: it is retried once and says nothing about the
 * command.
 */
static bool stood_still(const struct rig_result *result)
{
	return result->status == RIG_FAILED &&
	       strstr(result->errors, "rig: the machine stands still");
}

void rig_run_on(struct rig_result *result, enum rig_kind kind, unsigned int timeout,
		const char *format, ...)
{
	static const char *const options[] = {
		[RIG_AMD] = "--amd",
		[RIG_TRUSTED_TSC] = "--trusted-tsc",
		[RIG_UNSTABLE_TSC] = "--unstable-tsc",
		[RIG_INTEL] = "--intel",
	};
	va_list arguments;
	char seconds[16];
	char *command;

	snprintf(seconds, sizeof(seconds), "%u", timeout);
	va_start(arguments, format);
	if (vasprintf(&command, format, arguments) < 0)
		abort();
	va_end(arguments);
	for (int tries = 0; tries < 2; tries++) {
		if (tries)
			rig_result_free(result);
		run_and_keep(result,
			     (const char *[]){ "tests/rig/rig", options[kind], "--timeout", seconds,
					       "--", "/bin/bash", "-c", command, NULL });
		if (!stood_still(result))
			break;
		printf("%s", result->errors);
	}
	if (result->status == RIG_TIMED_OUT || result->status == RIG_FAILED)
		printf("in the rig: %s\nexited with status %d; standard output:\n%s\nstandard error:\n%s\n",
		       command, result->status, result->output, result->errors);
	free(command);
}

void rig_run_here(struct rig_result *result, unsigned int timeout, const char *format, ...)
{
	char seconds[16];
	char *command;
	va_list arguments;

	snprintf(seconds, sizeof(seconds), "%u", timeout);
	va_start(arguments, format);
	if (vasprintf(&command, format, arguments) < 0)
		abort();
	va_end(arguments);
	run_and_keep(result, (const char *[]){ "/usr/bin/timeout", "--kill-after=5", seconds,
					       "/bin/bash", "-c", command, NULL });
	free(command);
}

void rig_result_free(struct rig_result *result)
{
	free(result->output);
	free(result->errors);
	*result = (struct rig_result){ 0 };
}

static void cut_last_newline(char *text)
{
	size_t length = strlen(text);

	if (length && text[length - 1] == '\n')
		text[length - 1] = '\0';
}

/* The result of `rig --check WHAT`, cached for the lifetime of the program. */
struct check {
	bool asked;
	char *reason;
};

static const char *check_reason(struct check *check, const char *what)
{
	struct rig_result result;

	if (check->asked)
		return check->reason;
	check->asked = true;
	run_and_keep(&result, (const char *[]){ "tests/rig/rig", "--check", what, NULL });
	cut_last_newline(result.output);
	if (result.status)
		check->reason =
			strdup(*result.output ? result.output
					      : "tests/rig/rig --check failed and said nothing");
	rig_result_free(&result);
	return check->reason;
}

const char *rig_unavailable_reason(void)
{
	static struct check check;

	return check_reason(&check, "rig");
}

const char *rig_debug_registers_unavailable_reason(void)
{
	static struct check check;

	return check_reason(&check, "debug-registers");
}

const char *rig_intel_unavailable_reason(void)
{
	static struct check check;

	return check_reason(&check, "intel");
}

/* The last line of TEXT, whose newline is cut off. */
static const char *last_line(char *text)
{
	char *newline;

	cut_last_newline(text);
	newline = strrchr(text, '\n');
	return newline ? newline + 1 : text;
}

/* Runs a script that makes a file; false, with a failed check or a skip, if it failed. */
static bool make_file(const char *const arguments[])
{
	struct rig_result result;
	bool made;

	run_and_keep(&result, arguments);
	made = !result.status;
	/* Mirrors remove old packages, and the newest suite changes. */
	if (!made && strstr(result.errors, "no cloud kernel"))
		test_skip(__FILE__, __LINE__, "%s %s: %s", arguments[0], arguments[1],
			  last_line(result.errors));
	else if (!made)
		FAIL_TEST("%s %s failed: %s", arguments[0], arguments[1], result.errors);
	rig_result_free(&result);
	return made;
}

/* Returned paths; there are five kernels and their initrds. */
static const char *keep_path(const char *format, const char *version)
{
	static char *paths[16];
	char *path;

	if (asprintf(&path, format, version) < 0)
		abort();
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (!paths[i])
			return paths[i] = path;
		if (!strcmp(paths[i], path)) {
			free(path);
			return paths[i];
		}
	}
	abort();
}

const char *rig_kernel(const char *version)
{
	if (!make_file((const char *[]){ "tests/rig/fetch-kernels", version, NULL }))
		return NULL;
	return keep_path("build/cache/kernels/%s/vmlinuz", version);
}

const char *rig_initrd(const char *version)
{
	if (!make_file((const char *[]){ "tests/rig/initrd", "--kernel", version, NULL }))
		return NULL;
	return keep_path("build/initrd/%s.cpio", version);
}
