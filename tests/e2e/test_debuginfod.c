// SPDX-License-Identifier: Apache-2.0
/* A stripped program that is gone, named by a debuginfod server of the test's own. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/command.h"
#include "tests/e2e/perf_home.h"
#include "tests/unit/shim/test.h"

#define REPORT "DEBUGINFOD_CACHE_PATH=%s/cache build/kvmscope report -i %s/perf.data"

struct server {
	char home[64];
	int port;
	pid_t pid;
};

static int free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;

	if (!bind(fd, (struct sockaddr *)&address, size) &&
	    !getsockname(fd, (struct sockaddr *)&address, &size))
		port = ntohs(address.sin_port);
	close(fd);
	return port;
}

/* Of files below HOME/files. */
static void serve(struct server *server)
{
	char port[16], files[80], cache[96];

	server->port = free_port();
	snprintf(port, sizeof(port), "%d", server->port);
	snprintf(files, sizeof(files), "%s/files", server->home);
	snprintf(cache, sizeof(cache), "%s/server", server->home);
	server->pid = fork();
	if (server->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("DEBUGINFOD_CACHE_PATH", cache, true);
	unsetenv("DEBUGINFOD_URLS");
	freopen("/dev/null", "w", stdout);
	freopen("/dev/null", "w", stderr);
	execlp("debuginfod", "debuginfod", "-F", "-p", port, "-d", ":memory:", files, NULL);
	_exit(127);
}

/* The server has HOME/files/gone and its debugging file; what was recorded of it is HOME/perf.data. */
static void begin(struct server *server)
{
	free(perf_output("mkdir %s/files && cp build/inlines/stripped %s/gone && "
			 "cp build/inlines/stripped build/inlines/stripped.debug %s/files && "
			 "perf record -q -e cpu-clock -F 5000 -o %s/perf.data %s/gone 2>&1; rm %s/gone",
			 server->home, server->home, server->home, server->home, server->home, server->home));
	serve(server);
}

static void end(struct server *server)
{
	kill(server->pid, SIGKILL);
	waitpid(server->pid, NULL, 0);
	perf_home_leave(server->home);
}

/* It takes a moment until the server listens and knows its files; what it did not know once is remembered. */
static char *report_when_it_answers(const struct server *server)
{
	char *text = NULL;

	for (int i = 0; i < 100; i++) {
		free(text);
		text = command_output(NULL,
				      "rm -rf %s/cache; " REPORT
				      " --inline --debuginfod=http://127.0.0.1:%d 2> /dev/null",
				      server->home, server->home, server->home, server->port);
		if (strstr(text, "hash_block"))
			return text;
		usleep(100000);
	}
	return text;
}

#define NEED_SERVER                                                                                          \
	do {                                                                                                 \
		if (!command_succeeds("debuginfod --version"))                                               \
			SKIP("debuginfod (package debuginfod) does not run here");                           \
	} while (0)

TEST(debuginfod, names_what_is_not_on_this_machine)
{
	struct server server;
	char *text;

	NEED_PERF;
	NEED_SERVER;
	perf_home_enter(server.home);
	begin(&server);
	text = report_when_it_answers(&server);
	CHECK(strstr(text, "hash_block"));
	CHECK(strstr(text, "mix (inlined)"));
	free(text);

	/* It lies in the cache of the library now: nobody is asked. */
	text = command_output(NULL, REPORT " --debuginfod=http://127.0.0.1:1 2> /dev/null", server.home,
			      server.home);
	CHECK(strstr(text, "hash_block"));
	free(text);

	/* Of another build nothing is taken, whoever says that it is that one. */
	text = command_output(
		NULL,
		"for f in %s/cache/*/*; do if [ -s $f ]; then chmod u+w $f; cat build/inlines/clang > $f; fi; done; " REPORT
		" --debuginfod=http://127.0.0.1:1 2> /dev/null",
		server.home, server.home, server.home);
	CHECK(strstr(text, " gone"));
	CHECK(!strstr(text, "hash_block"));
	free(text);
	end(&server);
}

/* A server would learn what the guest runs. */
TEST(debuginfod, is_asked_only_if_the_user_says_so)
{
	struct server server;
	int status;
	char *text;

	NEED_PERF;
	NEED_SERVER;
	perf_home_enter(server.home);
	begin(&server);
	text = report_when_it_answers(&server);
	free(text);
	text = command_output(NULL,
			      "rm -rf %s/cache; DEBUGINFOD_URLS=http://127.0.0.1:%d " REPORT
			      " --inline; ls %s/cache 2> /dev/null",
			      server.home, server.port, server.home, server.home, server.home);
	CHECK(strstr(text, " gone"));
	CHECK(!strstr(text, "hash_block"));
	CHECK(!strstr(text, "cache_miss_s"));
	free(text);
	text = command_output(NULL,
			      "DEBUGINFOD_URLS=http://127.0.0.1:%d " REPORT " --debuginfod 2> /dev/null",
			      server.port, server.home, server.home);
	CHECK(strstr(text, "hash_block"));
	free(text);
	text = command_output(&status, "env -u DEBUGINFOD_URLS " REPORT " --debuginfod 2>&1", server.home,
			      server.home);
	CHECK_EQUAL(status, 2);
	CHECK(strstr(text, "DEBUGINFOD_URLS"));
	free(text);
	end(&server);
}
