/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"

TEST(error, set_returns_the_error_and_keeps_the_message)
{
	CHECK_EQUAL(error_set(-ENOENT, "cannot open %s", "a file"), -ENOENT);
	CHECK_STRING(error_message(), "cannot open a file");
}

TEST(error, a_message_may_wrap_the_one_before)
{
	error_set(-EIO, "disk is gone");
	error_set(-EIO, "cannot load the kernel: %s", error_message());
	CHECK_STRING(error_message(), "cannot load the kernel: disk is gone");
}
