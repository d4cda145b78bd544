/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a perf.data file, which is loaded, reported and exported in every format. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/report/flame_graph.h"
#include "vmm/report/folded.h"
#include "vmm/report/report_rows.h"
#include "vmm/report/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_report(const struct profile *profile, unsigned int keys, bool children, FILE *to)
{
	struct report_options options = { .keys = keys, .children = children, .call_trees = true };
	size_t count = profile_event_count(profile) > 8 ? 8 : profile_event_count(profile);
	struct report *reports[8];

	for (options.event = 0; options.event < count || !options.event; options.event++)
		if (report_build(&reports[options.event], profile, &options))
			abort();
	count = options.event;
	report_print_text(reports, count, to, true);
	report_print_json(reports, count, to);
	while (count)
		report_free(reports[--count]);
}

static void use(const char *path, FILE *to)
{
	/* Symbols of this machine would make runs differ. */
	const struct profile_options options = {
		.input = path, .vcpu = -1, .samples = true, .sources.buildid_dir = "/nonexistent"
	};
	struct profile *profile;

	if (profile_load(&profile, &options))
		return;
	print_report(profile, REPORT_SYMBOL | REPORT_IMAGE, true, to);
	print_report(profile, REPORT_VCPU | REPORT_COMM | REPORT_PID, false, to);
	folded_write(profile, FOLDED_BY_CGROUP, to);
	flame_graph_write(profile, FOLDED_BY_CONTAINER, to);
	profile_free(profile);
	script_write(&options, to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[32];
	FILE *to = fopen("/dev/null", "we");
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || !to || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	use(path, to);
	close(fd);
	fclose(to);
	return 0;
}
