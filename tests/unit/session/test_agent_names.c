// SPDX-License-Identifier: Apache-2.0
/* Which images of a guest its agent is asked for; this one does not answer. */
#include "vmm/session/agent_names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

static const char name[] = "/bin/program";

/* Maps program number FROM and so on, COUNT of them. */
static void map(struct agent_names *symbols, struct agent *agent, uint32_t from, uint32_t count)
{
	struct sideband_mmap *mapping = calloc(1, sizeof(*mapping) + sizeof(name));

	REQUIRE(mapping != NULL);
	*mapping = (struct sideband_mmap){ .start = 0x400000,
					   .length = 4096,
					   .prot = PROT_EXEC,
					   .build_id_size = sizeof(mapping->build_id) };
	memcpy(mapping->name, name, sizeof(name));
	memset(mapping->build_id, 0xa5, sizeof(mapping->build_id));
	for (uint32_t i = from; i < from + count; i++) {
		memcpy(mapping->build_id, &i, sizeof(i));
		agent_names_see(symbols, agent, mapping);
	}
	free(mapping);
}

TEST(agent_names, images_that_are_not_asked_for_are_counted_once)
{
	struct agent_names_statistics statistics;
	struct agent_options options = { 0 };
	struct agent_names *symbols;
	struct agent *agent;
	int fds[2];

	REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	REQUIRE(!ring_create(&options.ring, 1 << 16));
	options.fd = fds[0];
	REQUIRE(!agent_start(&agent, &options));
	REQUIRE(!agent_names_create(&symbols, NULL, 1 << 20));
	for (int i = 0; i < 3; i++)
		map(symbols, agent, 0, AGENT_TABLES_WAITING + 5);
	agent_names_statistics(symbols, &statistics);
	CHECK_EQUAL(statistics.unasked, 5);
	CHECK(!statistics.more);
	map(symbols, agent, AGENT_TABLES_WAITING, 10000);
	agent_names_statistics(symbols, &statistics);
	CHECK(statistics.unasked > 5 && statistics.unasked < 10000);
	CHECK(statistics.more);
	agent_names_destroy(symbols);
	agent_stop(agent, NULL);
	ring_destroy(options.ring);
	close(fds[1]);
}
