/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/screen.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/printable.h"

#define DEFAULT_PAGER "less -FRX"

static struct {
	pid_t pid;
	int output; /* standard output without it */
} pager;

bool screen_has_color(void)
{
	const char *terminal = getenv("TERM"), *refused = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && !(refused && *refused) && terminal &&
	       strcmp(terminal, "dumb") != 0;
}

static struct winsize size(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) ? (struct winsize){ 0 } : size;
}

unsigned int screen_columns(void)
{
	return size().ws_col;
}

unsigned int screen_lines(void)
{
	return size().ws_row;
}

static const char *pager_command(void)
{
	const char *chosen = getenv("PAGER");

	return chosen ? chosen : DEFAULT_PAGER;
}

bool screen_has_pager(void)
{
	const char *command = pager_command();

	if (!isatty(STDOUT_FILENO) || !*command || !strcmp(command, "cat"))
		return false;
	return getenv("PAGER") || !system("command -v less > /dev/null 2>&1");
}

/* In the child. PAGER is a shell's command line, as for git and man. */
static void run_pager(int input)
{
	dup2(input, STDIN_FILENO);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	setenv("LESS", "FRX", 0); /* for PAGER=less; without R it would show colors as codes */
	execl("/bin/sh", "sh", "-c", pager_command(), (char *)NULL);
	_exit(127);
}

int screen_pager_start(void)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return error_set(-errno, "cannot start the pager: %s", strerror(errno));
	fflush(stdout);
	pager.pid = fork();
	if (!pager.pid)
		run_pager(ends[0]);
	close(ends[0]);
	if (pager.pid > 0) {
		signal(SIGINT, SIG_IGN);
		signal(SIGQUIT, SIG_IGN);
		signal(SIGPIPE, SIG_IGN);
		pager.output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		dup2(ends[1], STDOUT_FILENO);
	}
	close(ends[1]);
	return pager.pid > 0 ? 0 : error_set(-errno, "cannot start the pager: %s", strerror(errno));
}

int screen_pager_end(void)
{
	int status = 0;

	fflush(stdout);
	clearerr(stdout); /* -EPIPE if it was closed early */
	dup2(pager.output, STDOUT_FILENO);
	close(pager.output);
	while (waitpid(pager.pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return error_set(
			-ENOENT,
			"the pager '%s' cannot be run: set PAGER to another one, or give --no-pager",
			pager_command());
	return 0;
}

void screen_print(const char *text)
{
	for (; *text; text++) {
		size_t control = control_character_size(text);

		putchar(control ? '?' : *text);
		text += control ? control - 1 : 0;
	}
}

void screen_print_json(const json_t *object)
{
	json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
	putchar('\n');
}

const char *answer_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

double answer_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}
