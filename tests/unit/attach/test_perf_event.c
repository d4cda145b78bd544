/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/mediated_pmu.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/perf_event.h"

static unsigned long long max_rate(void)
{
	FILE *file = fopen("/proc/sys/kernel/perf_event_max_sample_rate", "re");
	unsigned long long rate = 0;

	if (file) {
		CHECK_EQUAL(fscanf(file, "%llu", &rate), 1);
		fclose(file);
	}
	return rate;
}

/* The kernel may have lowered its limit since the first vCPU: later ones are sampled all the
 * same. */
TEST(perf_event, has_the_frequency_that_the_kernel_allows)
{
	struct perf_event_attr attribute = {
		.size = sizeof(attribute),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.freq = 1,
		.exclude_kernel = 1,
		.sample_freq = max_rate(),
	};
	int fd = perf_event_open_thread(&attribute, gettid());

	if (!attribute.sample_freq || fd < 0)
		SKIP("this process may not open perf events");
	close(fd);
	attribute.sample_freq *= 4;
	fd = perf_event_open_thread(&attribute, gettid());
	CHECK(fd >= 0);
	close(fd);
	attribute.config = PERF_COUNT_SW_MAX;
	CHECK(perf_event_open_thread(&attribute, gettid()) < 0);
}

/* A VM that starts, or its neighbour, must not fail because of a profile. */
TEST(perf_event, samples_cpu_time_unless_cycles_are_asked_for)
{
	struct perf_event_choice choice;

	if (perf_event_choose(&choice, getpid(), 99, ATTACH_CLOCK))
		SKIP("this process may not open perf events");
	CHECK_EQUAL(choice.event, ATTACH_CLOCK);
	CHECK_EQUAL(choice.attribute.type, PERF_TYPE_SOFTWARE);
	if (!perf_event_choose(&choice, getpid(), 99, ATTACH_CYCLES))
		CHECK_EQUAL(choice.attribute.type, PERF_TYPE_HARDWARE);
	else
		CHECK(strstr(error_message(), "use --event cpu-clock"));
}

TEST(perf_event, a_mediated_pmu_is_detected_in_any_module_of_kvm)
{
	static const char *const modules[] = { "kvm", "kvm_intel", "kvm_amd" };

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		char directory[] = "/tmp/kvmscope-modules-XXXXXX";

		REQUIRE(mkdtemp(directory) != NULL);
		CHECK(!mediated_pmu_is_enabled(directory));
		free(command_output(NULL,
				    "mkdir -p %s/%s/parameters && echo N > "
				    "%s/%s/parameters/enable_mediated_pmu",
				    directory, modules[i], directory, modules[i]));
		CHECK(!mediated_pmu_is_enabled(directory));
		free(command_output(NULL, "echo Y > %s/%s/parameters/enable_mediated_pmu",
				    directory, modules[i]));
		CHECK(mediated_pmu_is_enabled(directory));
		free(command_output(NULL, "rm -r %s", directory));
	}
}
