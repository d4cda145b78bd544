/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shim/test.h"
#include "vmm/attach/vcpu_times.h"

TEST(vcpu_times, an_interval_has_the_times_since_its_beginning)
{
	struct vcpu_times_rows earlier = { 0 }, now = { 0 };
	struct vcpu_times sum;

	vcpu_times_row(&earlier, 2)->ns[VCPU_GUEST] = 5;
	vcpu_times_row(&now, 2)->ns[VCPU_GUEST] = 105;
	vcpu_times_row(&now, 0)->ns[VCPU_GUEST] = 1000; /* plugged since */
	vcpu_times_row(&now, 2)->ns[VCPU_HALTED] = 20;
	CHECK_EQUAL(now.count, 2);
	CHECK_EQUAL(now.rows[0].vcpu, 0);
	vcpu_times_subtract(&now, &earlier);
	CHECK_EQUAL(now.rows[1].ns[VCPU_GUEST], 100);
	sum = vcpu_times_sum(&now);
	CHECK_EQUAL(sum.ns[VCPU_GUEST], 1100);
	CHECK_EQUAL(sum.ns[VCPU_HALTED], 20);
	vcpu_times_free(&earlier);
	vcpu_times_free(&now);
}

TEST(vcpu_times, guest_time_is_divided_by_interrupts_if_there_are_enough)
{
	struct vcpu_times times = { .user_samples = 20, .kernel_samples = 9 };

	times.ns[VCPU_GUEST] = 1000;
	CHECK(vcpu_times_guest_user(&times) < 0);
	times.kernel_samples = 20;
	CHECK(vcpu_times_guest_user(&times) == 500);
}

TEST(vcpu_times, each_detail_has_states_that_add_up)
{
	static const unsigned int states[] = {
		[VCPU_TIMES_OF_PROC] = 3, [VCPU_TIMES_OF_SCHEDULER] = 4, [VCPU_TIMES_ALL] = 6
	};

	for (unsigned int detail = 0; detail <= VCPU_TIMES_ALL; detail++) {
		unsigned int count = 0;

		for (unsigned int state = 0; state < VCPU_STATES; state++)
			count += vcpu_times_have(detail, state);
		CHECK_EQUAL(count, states[detail]);
	}
}
