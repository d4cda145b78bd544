/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stripped program of a Debian guest, whose symbols are not on this machine: a private debuginfod
 * server has it and its separate debug file, which has its functions and those inlined in them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/debuginfod_server.h"
#include "tests/e2e/perf_home.h"
#include "tests/rig/debian_recording.h"
#include "tests/rig/rig.h"
#include "tests/unit/run_command.h"

#define PROGRAM     "build/rig/userland/stripped"
#define SAMPLES_MAX 16384
/* From both runs of the user land, some 600. */
#define ENOUGH 300

/* The client library caches negative replies. $HOME has no symbols of the guest. */
#define KVMSCOPE                                                                                            \
	"rm -rf $HOME/cache; DEBUGINFOD_CACHE_PATH=$HOME/cache build/kvmscope %s -i %s/perf.data --inline " \
	"--debuginfod=http://127.0.0.1:%d 2> /dev/null"

/* The innermost frame of a sample in the program. */
struct leaf {
	unsigned long long address; /* in its file */
	char name[64];
};

struct leaves {
	struct leaf of[SAMPLES_MAX];
	size_t count;
};

/* "ADDRESS NAME+OFFSET (PATH)"; an inlined function is "ADDRESS NAME (inlined)". */
static bool read_frame(const char *line, struct leaf *leaf, char path[128])
{
	if (sscanf(line, " %llx %63s (%127[^)])", &leaf->address, leaf->name, path) != 3)
		return false;
	leaf->name[strcspn(leaf->name, "+")] = '\0';
	return true;
}

/*
 * Called after a sample's heading. An inlined function is followed by its callers, the last of
 * which has a path.
 */
static void read_leaf(FILE *script, struct leaves *leaves)
{
	struct leaf *leaf = &leaves->of[leaves->count], caller;
	char line[1024], path[128];

	if (!fgets(line, sizeof(line), script) || !read_frame(line, leaf, path))
		return;
	while (!strcmp(path, "inlined") && fgets(line, sizeof(line), script))
		if (!read_frame(line, &caller, path))
			return;
	leaves->count += !strcmp(path, "/mnt/bin/stripped") && leaves->count < SAMPLES_MAX - 1;
}

static void read_leaves(const struct debuginfod_server *server, const char *directory,
			struct leaves *leaves)
{
	char command[512], line[1024];
	FILE *script;

	snprintf(command, sizeof(command), KVMSCOPE, "export --format script", directory,
		 server->port);
	script = popen(command, "re");
	leaves->count = 0;
	while (script && fgets(line, sizeof(line), script))
		if (!strncmp(line, "stripped ", 9))
			read_leaf(script, leaves);
	CHECK(script && !pclose(script));
}

static unsigned long count(const struct leaves *leaves, const char *name)
{
	unsigned long found = 0;

	for (size_t i = 0; i < leaves->count; i++)
		found += !strcmp(leaves->of[i].name, name);
	return found;
}

/* Retries until the server has indexed its file. */
static void read_with_retries(const struct debuginfod_server *server, const char *directory,
			      struct leaves *leaves)
{
	for (int i = 0; i < 100; i++) {
		read_leaves(server, directory, leaves);
		if (count(leaves, "add_often"))
			return;
		usleep(100000);
	}
}

/*
 * addr2line prints two lines for each address: the name of the innermost function, and the source
 * line.
 */
static void check_symbols(const struct leaves *leaves)
{
	char line[1024], path[128];
	FILE *addresses, *said;

	snprintf(path, sizeof(path), "%s/addresses", getenv("HOME"));
	addresses = fopen(path, "w");
	REQUIRE(addresses);
	for (size_t i = 0; i < leaves->count; i++)
		fprintf(addresses, "%llx\n", leaves->of[i].address);
	fclose(addresses);
	said = popen("addr2line -f -e " PROGRAM ".whole < $HOME/addresses", "re");
	for (size_t i = 0; said && i < leaves->count && fgets(line, sizeof(line), said); i++) {
		line[strcspn(line, "\n")] = '\0';
		/*
		 * For code outside of any compiled function it prints no name; kvmscope has names
		 * only for stubs there.
		 */
		if (strcmp(line, "??") != 0 || !strstr(leaves->of[i].name, "@plt"))
			CHECK_STRING(leaves->of[i].name, strcmp(line, "??") ? line : "[unknown]");
		CHECK(fgets(line, sizeof(line), said));
	}
	CHECK(said && !pclose(said));
}

/* By the steps of each function; the program itself makes none. */
static void check_shares(const struct leaves *leaves)
{
	double often = (double)count(leaves, "add_often"),
	       seldom = (double)count(leaves, "add_seldom");
	double share = often / (often + seldom), deviation = sqrt(0.75 * 0.25 / (often + seldom));

	printf("of %zu samples in the stripped program, %.0f are in add_often(), %.0f in add_seldom(): %.1f %%, the truth is 75.0 %%\n",
	       leaves->count, often, seldom, 100 * share);
	CHECK(often + seldom >= ENOUGH);
	CHECK(fabs(share - 0.75) < fmax(0.03, 5 * deviation));
}

static void check_report(const struct debuginfod_server *server, const char *directory)
{
	char *text = command_output(NULL, KVMSCOPE, "report --sort comm,image,symbol", directory,
				    server->port);

	CHECK(strstr(text, "add_often (inlined)"));
	CHECK(strstr(text, "add_seldom (inlined)"));
	free(text);
	text = command_output(
		NULL,
		"build/kvmscope report --sort comm,image,symbol -i %s/perf.data --inline 2> /dev/null",
		directory);
	CHECK(strstr(text, "stripped"));
	CHECK(!strstr(text, "stripped_spin"));
	CHECK(!strstr(text, "add_often"));
	free(text);
}

static void serve_and_check(const char *directory)
{
	static struct leaves leaves;
	struct debuginfod_server server;

	perf_home_enter(server.home);
	REQUIRE(command_succeeds("mkdir $HOME/files && cp " PROGRAM " " PROGRAM
				 ".debug $HOME/files"));
	debuginfod_server_start(&server);
	read_with_retries(&server, directory, &leaves);
	check_symbols(&leaves);
	check_shares(&leaves);
	check_report(&server, directory);
	debuginfod_server_stop(&server);
	perf_home_leave(server.home);
}

TEST(userland, stripped_program_gets_symbols_from_a_debuginfod_server)
{
	const char *directory;

	RIG_REQUIRED();
	NEED_DEBUGINFOD;
	directory = debian_recording(DEBIAN_LONGER, "off");
	if (directory)
		serve_and_check(directory);
}
