/* SPDX-License-Identifier: Apache-2.0 */
/* Input: what the process that converts a recording passes to the daemon, after a takeover. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "vmm/daemon/push_profile.h"

#define SPOOL_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[] = "/tmp/kvmscope-fuzz-push-XXXXXX";
static struct push_spool *spool;

static void remove_spool(void)
{
	char command[sizeof(directory) + 16];

	push_spool_close(spool);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command)) /* NOLINT(cert-env33-c): the target's own directory */
		perror(command);
}

static void open_spool(void)
{
	if (spool)
		return;
	if (!mkdtemp(directory) || push_spool_open(&spool, directory, SPOOL_MAX))
		abort();
	atexit(remove_spool);
}

/* Whatever is stored has a valid name, and no more bytes than the input. */
static void check_stored(size_t size)
{
	struct push_item *items, again;
	char name[PUSH_NAME_SIZE];
	uint64_t bytes, sum = 0;
	size_t count;

	assert(!push_spool_list(spool, &items, &count));
	for (size_t i = 0; i < count; i++) {
		int fd = push_spool_read(spool, &items[i], &bytes);

		assert(fd >= 0);
		close(fd);
		sum += bytes;
		push_item_name(&items[i], name);
		assert(push_item_parse(name, &again) && again.vcpu == items[i].vcpu);
		push_spool_remove(spool, &items[i]);
	}
	assert(sum <= size);
	free(items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct recordings_file file = {
		.path = "the recording", .domain = "vm", .from = 1, .until = 2
	};
	FILE *from = tmpfile();

	open_spool();
	assert(from && fwrite(data, 1, size, from) == size);
	push_profile_store(spool, from, &file, NULL);
	fclose(from);
	check_stored(size);
	return 0;
}
