// SPDX-License-Identifier: Apache-2.0
/* A perf.data file of any bytes, loaded, reported and exported in every form. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/profile/flame_graph.h"
#include "vmm/profile/folded.h"
#include "vmm/profile/report.h"
#include "vmm/profile/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_report(const struct profile *profile, unsigned int keys, bool children, FILE *to)
{
	const struct report_options options = { .keys = keys, .children = children };
	struct report *report;

	if (report_build(&report, profile, &options))
		abort();
	report_print_text(&report, 1, to, true);
	report_print_json(&report, 1, to);
	report_free(report);
}

static void use(const char *path, FILE *to)
{
	/* No names from this machine: they would make runs differ. */
	const struct profile_options options = { .input = path, .vcpu = -1, .buildid_dir = "/nonexistent" };
	struct profile *profile;

	if (profile_load(&profile, &options))
		return;
	print_report(profile, REPORT_SYMBOL | REPORT_IMAGE, true, to);
	print_report(profile, REPORT_VCPU | REPORT_COMM | REPORT_PID, false, to);
	folded_write(profile, to);
	flame_graph_write(profile, to);
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
