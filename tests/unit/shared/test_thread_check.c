/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/thread_check.h"
#include "tests/unit/shim/test.h"

static void *passes(void *check)
{
	return thread_check_passes(check) ? check : NULL;
}

static bool passes_elsewhere(struct thread_check *check)
{
	pthread_t thread;
	void *result = NULL;

	return !pthread_create(&thread, NULL, passes, check) && !pthread_join(thread, &result) &&
	       result;
}

TEST(thread_check, is_bound_by_the_first_use_until_it_is_released)
{
	struct thread_check check = { 0 };

	CHECK(thread_check_passes(&check));
	CHECK(thread_check_passes(&check));
	CHECK(!passes_elsewhere(&check));
	thread_check_release(&check);
	CHECK(passes_elsewhere(&check));
	CHECK(!thread_check_passes(&check));
}
