/* SPDX-License-Identifier: Apache-2.0 */
/* Selecting one of a run's watches by the user's text. */
#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "tests/kvm/bare_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/cli/run_control.h"

TEST(watch_find, limit_distinguishes_two_watches_at_one_address)
{
	static struct run_options options = { .cpus = 1, .watch_count = 2 };
	struct run_watch *watch;
	int error;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(watch_spec_parse(&options.watches[0], "schedule:x,limit=500"), 0);
	REQUIRE_EQUAL(watch_spec_parse(&options.watches[1], "schedule:x,limit=700"), 0);
	error = run_watch_create(&watch, &options);
	if (error == -ENOTSUP)
		SKIP("%s", error_message());
	REQUIRE_EQUAL(error, 0);
	CHECK_EQUAL(run_watch_find(watch, "schedule:x,limit=500"), 0);
	CHECK_EQUAL(run_watch_find(watch, "schedule:x,limit=700"), 1);
	CHECK_EQUAL(run_watch_find(watch, "schedule:x"), -EINVAL);
	CHECK(strstr(error_message(), "2 watches are") != NULL);
	run_watch_destroy(watch);
}
