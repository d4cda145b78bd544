/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KVM accepts the filters. Their effect is visible only if KVM has counters, which this machine may
 * not have.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/kvm/vm.h"
#include "vmm/pmu/pmu_kernel.h"

TEST(event_filter, KVM_accepts_the_events_that_the_host_allows)
{
	const uint64_t none = 0;
	struct vm vm;

	if (access("/dev/kvm", R_OK | W_OK))
		SKIP("/dev/kvm cannot be opened");
	REQUIRE_EQUAL(vm_create(&vm, 1 << 20), 0);
	if (vm_capability(&vm, KVM_CAP_PMU_EVENT_FILTER)) {
		for (unsigned int model = PMU_INTEL; model <= PMU_AMD_CORE; model++)
			if (pmu_kernel_reserve(&vm, (enum pmu_model)model))
				FAIL_TEST("%s", error_message());
		CHECK_EQUAL(vm_deny_events(&vm, &none, 0), 0);
	} else {
		CHECK_EQUAL(pmu_kernel_reserve(&vm, PMU_INTEL), -ENOTSUP);
	}
	vm_destroy(&vm);
}
