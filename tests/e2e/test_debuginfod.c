/* SPDX-License-Identifier: Apache-2.0 */
/* A stripped program whose file is gone is symbolized by a private debuginfod server. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/e2e/debuginfod_server.h"
#include "tests/e2e/perf_home.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

#define REPORT "DEBUGINFOD_CACHE_PATH=%s/cache build/kvmscope report -i %s/perf.data"

/* The server has HOME/files/gone and its debug file; the recording is HOME/perf.data. */
static void begin(struct debuginfod_server *server)
{
	free(perf_output(
		"mkdir %s/files && cp build/inlines/stripped %s/gone && "
		"cp build/inlines/stripped build/inlines/stripped.debug %s/files && "
		"perf record -q -e cpu-clock -F 5000 -o %s/perf.data %s/gone 2>&1; rm %s/gone",
		server->home, server->home, server->home, server->home, server->home,
		server->home));
	debuginfod_server_start(server);
}

static void end(struct debuginfod_server *server)
{
	debuginfod_server_stop(server);
	perf_home_leave(server->home);
}

/*
 * Retries until the server listens and has indexed its files; a negative reply is cached. The few
 * samples in hash_block's own code may all be in functions inlined there.
 */
static char *report_with_retries(const struct debuginfod_server *server)
{
	char *text = NULL;

	for (int i = 0; i < 100; i++) {
		free(text);
		text = command_output(
			NULL,
			"rm -rf %s/cache; " REPORT
			" --inline --children --debuginfod=http://127.0.0.1:%d 2> /dev/null",
			server->home, server->home, server->home, server->port);
		if (strstr(text, "hash_block"))
			return text;
		usleep(100000);
	}
	return text;
}

TEST(debuginfod, symbolizes_images_that_are_not_on_this_machine)
{
	struct debuginfod_server server;
	char *text;

	NEED_PERF;
	NEED_DEBUGINFOD;
	perf_home_enter(server.home);
	begin(&server);
	text = report_with_retries(&server);
	if (!strstr(text, "hash_block"))
		FAIL_TEST("no symbols arrived: %.3000s", text);
	CHECK(strstr(text, "mix (inlined)"));
	free(text);

	/* The file is in the client's cache now: no server is needed. */
	text = command_output(NULL, REPORT " --debuginfod=http://127.0.0.1:1 2> /dev/null",
			      server.home, server.home);
	CHECK(strstr(text, "hash_block"));
	free(text);

	/* A file of another build is not used, even if the server returns it for this build ID. */
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

/* A server would learn which programs the guest runs. */
TEST(debuginfod, is_queried_only_if_the_user_enables_it)
{
	struct debuginfod_server server;
	int status;
	char *text;

	NEED_PERF;
	NEED_DEBUGINFOD;
	perf_home_enter(server.home);
	begin(&server);
	text = report_with_retries(&server);
	free(text);
	text = command_output(NULL,
			      "rm -rf %s/cache; DEBUGINFOD_URLS=http://127.0.0.1:%d " REPORT
			      " --inline; ls %s/cache 2> /dev/null",
			      server.home, server.port, server.home, server.home, server.home);
	CHECK(strstr(text, " gone"));
	CHECK(!strstr(text, "hash_block"));
	CHECK(!strstr(text, "cache_miss_s"));
	free(text);
	text = command_output(
		NULL, "DEBUGINFOD_URLS=http://127.0.0.1:%d " REPORT " --debuginfod 2> /dev/null",
		server.port, server.home, server.home);
	CHECK(strstr(text, "hash_block"));
	free(text);
	text = command_output(&status, "env -u DEBUGINFOD_URLS " REPORT " --debuginfod 2>&1",
			      server.home, server.home);
	CHECK_EQUAL(status, 2);
	CHECK(strstr(text, "DEBUGINFOD_URLS"));
	free(text);
	end(&server);
}
