/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The screen of kvmscope top in tmux, a real terminal: keys, sizes, the end. Its VMs do not exist
 * (top/canned_top.c), so it needs no KVM.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

#define TRIES   200 /* of 100 ms: of a busy machine */
#define PROGRAM "build/e2e/canned-top"

static char directory[64]; /* of tmux's socket, and of the file by which the second VM runs */

static char *tmux(const char *format, ...)
{
	char command[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	return command_output(NULL, "tmux -S %s/socket -f /dev/null %s 2>&1", directory, command);
}

static bool has_tmux(void)
{
	return command_succeeds("command -v tmux > /dev/null");
}

/* A shell, in which the program is started. */
static void start(const char *terminal, const char *size)
{
	int columns = 80, lines = 24;

	snprintf(directory, sizeof(directory), "build/test-top-%d", getpid());
	CHECK(!system("rm -rf build/test-top-*") && !mkdir(directory, 0700));
	sscanf(size, "%dx%d", &columns, &lines);
	free(tmux("new-session -d -x %d -y %d env LC_ALL=C.UTF-8 CANNED_VM=%s/vm TERM=%s PS1='$ ' "
		  "sh",
		  columns, lines, directory, terminal));
}

static void end(void)
{
	char command[128];

	free(tmux("kill-server"));
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	CHECK(!system(command));
}

static void send(const char *keys)
{
	free(tmux("send-keys %s", keys));
}

static char *screen(void)
{
	return tmux("capture-pane -p");
}

/* Waits until TEXT is on the screen, or with PRESENT false, is not. */
static void expect_presence(const char *text, bool present)
{
	char *shown = NULL;

	for (int i = 0; i < TRIES; i++) {
		free(shown);
		shown = screen();
		if (!strstr(shown, text) != present)
			break;
		usleep(100000);
	}
	if (!strstr(shown, text) == present)
		FAIL_TEST("'%s' is %s the screen:\n%s", text, present ? "not on" : "still on",
			  shown);
	free(shown);
}

#define EXPECT(text) expect_presence(text, true)
#define GONE(text)   expect_presence(text, false)

static void start_program(const char *terminal, const char *size)
{
	start(terminal, size);
	send(PROGRAM " Enter");
	EXPECT("share_sixty");
}

TEST(top_display, keys)
{
	if (!has_tmux())
		SKIP("no tmux");
	start_program("screen", "80x24");
	EXPECT("[k] clear_page_erms");
	send("h");
	EXPECT("keys and columns");
	send("Escape");
	EXPECT("share_sixty");
	send("Enter");
	EXPECT("callers of share_sixty in worker");
	EXPECT("---user_works");
	send("q");
	EXPECT("[k] clear_page_erms");
	send("Down Enter");
	EXPECT("callers of clear_page_erms");
	EXPECT("no callers are known");
	send("Escape");
	send("s");
	EXPECT("(by vm)");
	send("v");
	EXPECT("#1");
	send("1");
	GONE("#1");
	send("/ clear Enter");
	EXPECT("(with 'clear')");
	GONE("share_sixty");
	send("f C-u Enter");
	EXPECT("share_sixty");
	send("d C-u 0.5 Enter");
	EXPECT("every 0.5 s");
	send("d x Enter");
	EXPECT("it must be a number of seconds");
	send("p");
	EXPECT("PAUSED");
	send("Space");
	GONE("PAUSED");
	end();
}

TEST(top_display, vms_come_and_go)
{
	char file[128], command[160];

	if (!has_tmux())
		SKIP("no tmux");
	start_program("screen", "80x24");
	EXPECT("1 VM, 2 vCPUs");
	snprintf(file, sizeof(file), "%s/vm", directory);
	snprintf(command, sizeof(command), "touch %s", file);
	CHECK(!system(command));
	EXPECT("2 VMs, 3 vCPUs");
	EXPECT("default_idle");
	CHECK(!unlink(file));
	GONE("default_idle");
	EXPECT("1 VM, 2 vCPUs");
	end();
}

/* Nothing wraps, and the screen is drawn again. */
TEST(top_display, resize)
{
	char *shown;

	if (!has_tmux())
		SKIP("no tmux");
	start_program("screen", "80x24");
	free(tmux("resize-window -x 40 -y 10"));
	GONE("Enter callers");
	EXPECT("share_sixty");
	shown = screen();
	CHECK(!strncmp(shown, "kvmscope top", strlen("kvmscope top")));
	CHECK(strstr(shown, "\nq quit"));
	free(shown);
	free(tmux("resize-window -x 120 -y 40"));
	EXPECT("hlt 75%");
	EXPECT("v vCPUs");
	end();
}

/* Names with control characters change neither colors nor the title. */
TEST(top_display, names_do_not_control_the_terminal)
{
	char *shown;

	if (!has_tmux())
		SKIP("no tmux");
	start_program("screen", "120x24");
	EXPECT("[.] red?[31m?  lib?2J.so");
	EXPECT("web?[7m");
	shown = tmux("capture-pane -p -e");
	CHECK(!strstr(shown, "\033[31m"));
	free(shown);
	shown = tmux("display-message -p '#{pane_title}'");
	CHECK(strcmp(shown, "t\n") != 0);
	free(shown);
	end();
}

static void check_end(const char *terminal, const char *how)
{
	start_program(terminal, "80x24");
	if (*how == 'q' || *how == 'C')
		send(how);
	else
		CHECK(command_succeeds(how));
	/* The line is echoed again. A vt100 has no other screen: the table stays there. */
	GONE("q quit");
	send("'echo ok; stty -a | grep -c -w -- \"[-]echo\\|-icanon\"' Enter");
	EXPECT("ok\n0\n");
	end();
}

TEST(top_display, the_terminal_is_restored)
{
	if (!has_tmux())
		SKIP("no tmux");
	check_end("screen", "q");
	check_end("screen", "C-c");
	check_end("screen", "pkill -TERM -P $(tmux -S build/test-top-*/socket list-panes -F "
			    "'#{pane_pid}')");
}

TEST(top_display, monochrome_terminals)
{
	if (!has_tmux())
		SKIP("no tmux");
	check_end("vt100", "q");
	start("dumb-as-stone", "80x24");
	send(PROGRAM " Enter");
	EXPECT("the terminal 'dumb-as-stone' is unknown");
	end();
}

TEST(top_display, without_a_terminal)
{
	int status;
	char *text = command_output(&status, PROGRAM " < /dev/null 2>&1");

	CHECK(strstr(text, "kvmscope top needs a terminal: --batch prints tables"));
	CHECK_EQUAL(status, 4);
	free(text);
	text = command_output(&status, PROGRAM " --batch -n 2 2>&1");
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "4000001 web?[7m    2  50.0   5.0   2.5   2.5  39.0   1.0     1500  hlt "
			   "75%\n"));
	CHECK(strstr(text, "\n  61.5 worker     [.] share_sixty  worker\n"));
	free(text);
}
