/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

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
