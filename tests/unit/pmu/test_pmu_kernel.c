/* SPDX-License-Identifier: Apache-2.0 */
/* The events denied to a guest with KVM's own PMU. */
#include "tests/unit/shim/test.h"
#include "vmm/pmu/pmu_kernel.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool is_reserved(enum pmu_model model, uint64_t select)
{
	uint64_t events[EVENT_FILTER_MAX];
	const size_t count = pmu_kernel_reserved(model, events);

	for (size_t i = 0; i < count; i++)
		if (events[i] == select)
			return true;
	return false;
}

TEST(pmu_kernel, the_host_keeps_what_a_core_shares)
{
	static const uint64_t intel[] = { 0x01b7, 0x02b7, 0x01bb, 0x012a, 0x012b, 0x01cd,
					  0x01c6, 0x1b00, 0x0400, 0x8000, 0x8700 };

	for (size_t i = 0; i < COUNT(intel); i++)
		CHECK(is_reserved(PMU_INTEL, intel[i]));
	for (uint64_t umask = 0; umask < 256; umask++)
		CHECK(is_reserved(PMU_AMD_CORE, UINT64_C(0xf000000ff) | umask << 8));
}

TEST(pmu_kernel, the_guest_keeps_the_events_of_Linux)
{
	/* arch/x86/events/{intel,amd}/core.c: intel_perfmon_event_map, amd_*perfmon_event_map */
	static const uint64_t intel[] = { 0x003c, 0x00c0, 0x4f2e, 0x412e,
					  0x00c4, 0x00c5, 0x013c, 0x0300 };
	static const uint64_t amd[] = {
		0x0076, 0x00c0, 0x077d, 0x077e, 0x00c2, 0x00c3, 0x00d0,
		0x00d1, 0xff60, 0x0964, 0x0287, 0x0187, 0x00a9, 0x100000120
	};

	for (size_t i = 0; i < COUNT(intel); i++)
		CHECK(!is_reserved(PMU_INTEL, intel[i]));
	for (size_t i = 0; i < COUNT(amd); i++) {
		CHECK(!is_reserved(PMU_AMD_LEGACY, amd[i]));
		CHECK(!is_reserved(PMU_AMD_CORE, amd[i]));
	}
}
