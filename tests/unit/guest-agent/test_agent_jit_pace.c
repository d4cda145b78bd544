/* SPDX-License-Identifier: Apache-2.0 */
/* The rate at which the agent sends JIT maps does not depend on how often it reads them. */
#include "tests/unit/agent_set_clock.h"

#include "guest-agent/jit_files.c"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

#define RATE_DOCUMENTED (2u << 20) /* bytes a second: docs/man/kvmscope-agent.1 */
#define LINES           40000u
#define LINE_SIZE       28u

static struct output output;

/* This process's, which has written it itself and could go on to. */
static FILE *write_map(char path[32])
{
	FILE *map;

	snprintf(path, 32, "/tmp/perf-%d.map", getpid());
	map = fopen(path, "we");
	for (unsigned int i = 0; map && i < LINES; i++)
		fprintf(map, "%08x 10 function_%06u\n", 0x1000 + 16 * i, i);
	if (map)
		fflush(map);
	return map;
}

static uint64_t sent(void)
{
	return (uint64_t)maps[0].map.offset;
}

/* Until MS after BEGIN, thrice in each. */
static void look_often(uint64_t begin, unsigned int ms)
{
	for (; set_clock.ms < begin + ms; set_clock.ms++) {
		for (int i = 0; i < 3; i++) {
			CHECK_EQUAL(jit_maps_send(&output),
				    sent() < LINES * LINE_SIZE ? JIT_MAPS_MORE : JIT_MAPS_ALL);
			CHECK_EQUAL(output_flush(&output), 0);
		}
		CHECK(sent() <= JIT_MAPS_PART + (set_clock.ms - begin) * RATE_DOCUMENTED / 1000);
	}
}

TEST(agent_pace, jit_maps_respect_the_rate_limit)
{
	char path[32];
	FILE *map = write_map(path);
	uint64_t begin = 1000000;

	REQUIRE(map != NULL);
	set_clock.ms = begin;
	output_open(&output, open("/dev/null", O_WRONLY | O_CLOEXEC));
	jit_maps_request((uint32_t)getpid());
	look_often(begin, 400);
	CHECK(sent() > 400ull * RATE_DOCUMENTED / 1000 / 2);
	CHECK(sent() < LINES * LINE_SIZE);
	look_often(begin, 800);
	CHECK_EQUAL(sent(), LINES * LINE_SIZE);
	stop_following(&maps[0]);
	fclose(map);
	close(output.fd);
	unlink(path);
}
