/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/program.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/unconst.h"
#include "tests/unit/shim/test.h"

#define WORDS_MAX 64

/* The program of the same build, which is in the test program's directory. */
void program_path(char *path)
{
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[length < 0 ? 0 : length] = '\0';
	snprintf(path, PATH_MAX, "%.4000s/kvmscope", dirname(self));
}

static void split(char *text, const char **words)
{
	size_t count = 0;

	words[count++] = "kvmscope";
	for (char *word = strtok(text, " "); word && count < WORDS_MAX - 1;
	     word = strtok(NULL, " ")) {
		for (char *at = word; *at; at++)
			if (*at == '_')
				*at = ' ';
		words[count++] = word;
	}
	words[count] = NULL;
}

void program_exec(const char *arguments)
{
	char path[PATH_MAX];
	const char *words[WORDS_MAX];

	program_path(path);
	split(strdup(arguments), words);
	execv(path, unconst(words));
	_exit(127);
}

void program_start(struct program *program, const char *arguments)
{
	*program = (struct program){ .output = memfd_create("output", MFD_CLOEXEC) };
	fflush(NULL);
	program->pid = fork();
	if (!program->pid) {
		dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
		dup2(program->output, STDOUT_FILENO);
		dup2(program->output, STDERR_FILENO);
		program_exec(arguments);
	}
}

static void read_output(struct program *program)
{
	ssize_t length = pread(program->output, program->text, sizeof(program->text) - 1, 0);

	program->text[length < 0 ? 0 : length] = '\0';
}

int program_wait_for(struct program *program, const char *text)
{
	const struct timespec while_waiting = { .tv_nsec = 10000000 };

	for (int tries = 0; tries < 6000; tries++) {
		siginfo_t ended = { 0 };

		read_output(program);
		if (strstr(program->text, text))
			return 1;
		waitid(P_PID, (id_t)program->pid, &ended, WEXITED | WNOHANG | WNOWAIT);
		if (ended.si_pid)
			return 0;
		nanosleep(&while_waiting, NULL);
	}
	return 0;
}

void program_wait(struct program *program)
{
	int status;

	waitpid(program->pid, &status, 0);
	program->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	read_output(program);
	close(program->output);
}

void program_run(struct program *program, const char *arguments)
{
	program_start(program, arguments);
	program_wait(program);
}

void program_expect(const char *arguments, int status, const char *text)
{
	struct program program;

	program_run(&program, arguments);
	if (program.status != status || !strstr(program.text, text))
		FAIL_TEST("kvmscope %s: exit status %d, expected %d and '%s' in:\n%s", arguments,
			  program.status, status, text, program.text);
}

void program_refuses(const char *arguments, const char *text)
{
	program_expect(arguments, 2, text);
}

void program_set_home(const char *directory)
{
	static char *saved;

	if (directory) {
		saved = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
		setenv("HOME", directory, 1);
		return;
	}
	if (saved)
		setenv("HOME", saved, 1);
	else
		unsetenv("HOME");
	free(saved);
	saved = NULL;
}
