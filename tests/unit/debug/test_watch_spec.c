/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/debug/watch_spec.h"

static struct watch_spec parsed(const char *text)
{
	struct watch_spec spec = { .period = 0 };

	if (watch_spec_parse(&spec, text))
		FAIL_TEST("%s: %s", text, error_message());
	return spec;
}

static void check(const char *text, const char *symbol, uint64_t offset, enum breakpoint_kind kind,
		  unsigned int length, int vcpu)
{
	struct watch_spec spec = parsed(text);

	CHECK_STRING(spec.symbol, symbol);
	CHECK_EQUAL(spec.offset, offset);
	CHECK_EQUAL(spec.kind, kind);
	CHECK_EQUAL(spec.length, length);
	CHECK_EQUAL(spec.vcpu, vcpu);
}

TEST(watch_spec, places_lengths_and_accesses)
{
	check("jiffies_64:8:w", "jiffies_64", 0, BREAKPOINT_WRITE, 8, -1);
	check("jiffies_64", "jiffies_64", 0, BREAKPOINT_ACCESS, 4, -1);
	check("schedule:x", "schedule", 0, BREAKPOINT_EXECUTE, 1, -1);
	check("schedule:1:x@3", "schedule", 0, BREAKPOINT_EXECUTE, 1, 3);
	check("init_task+0x10:2:rw@0", "init_task", 0x10, BREAKPOINT_ACCESS, 2, 0);
	check("0xffffffff81a01238:8", "", 0xffffffff81a01238, BREAKPOINT_ACCESS, 8, -1);
	check("4096:1:w", "", 4096, BREAKPOINT_WRITE, 1, -1);
}

TEST(watch_spec, options)
{
	struct watch_spec spec = parsed("x:4:w@1,pinned,cr3=0x1234000,period=100");

	CHECK(spec.pinned);
	CHECK_EQUAL(spec.cr3, 0x1234000);
	CHECK_EQUAL(spec.period, 100);
	CHECK_EQUAL(spec.vcpu, 1);
	CHECK_EQUAL(spec.pid, WATCH_NO_PID);
	spec = parsed("x,pid=42");
	CHECK_EQUAL(spec.pid, 42);
	CHECK(!spec.pinned);
	CHECK_EQUAL(spec.period, 1);
	spec = parsed("x,comm=kworker/0:1");
	CHECK_STRING(spec.comm, "kworker/0:1");
	CHECK_EQUAL(spec.limit, 0);
	CHECK_EQUAL(parsed("x,limit=1000").limit, 1000);
}

TEST(watch_spec, names_are_perf_s)
{
	static const char *const cases[][2] = {
		{ "jiffies_64:8:w", "mem:jiffies_64:w" },
		{ "0xffffffff81a01238:8", "mem:0xffffffff81a01238:rw" },
		{ "schedule+4:x@1,pinned", "mem:schedule+0x4:x" },
	};
	char name[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct watch_spec spec = parsed(cases[i][0]);

		watch_spec_name(&spec, name, sizeof(name));
		CHECK_STRING(name, cases[i][1]);
	}
}

TEST(watch_spec, mistakes_are_explained)
{
	static const char *const cases[][2] = {
		{ "", "begin with a symbol" },
		{ ":8:w", "begin with a symbol" },
		{ "12ab", "begin with a symbol" },
		{ "sym+", "begin with a symbol" },
		{ "sym+-4", "begin with a symbol" },
		{ "sym:3:w", "1, 2, 4 or 8" },
		{ "sym:16", "1, 2, 4 or 8" },
		{ "sym:0:w", "1, 2, 4 or 8" },
		{ "sym:8:r", "reads only" },
		{ "sym:8:q", "w, rw or x" },
		{ "sym:8:w:x", "too many colons" },
		{ "sym@", "number of a vCPU" },
		{ "sym@a", "number of a vCPU" },
		{ "0x1001:8:w", "a multiple" },
		{ "sym,period=0", "period=" },
		{ "sym,cr3=0", "cr3=" },
		{ "sym,pid=", "pid=" },
		{ "sym,pid=-1", "pid=" },
		{ "sym,comm=", "comm=" },
		{ "sym,comm=0123456789abcdef", "comm=" },
		{ "sym,limit=9", "limit=" },
		{ "sym,flexible", "options are" },
	};
	struct watch_spec spec;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CHECK_EQUAL(watch_spec_parse(&spec, cases[i][0]), -EINVAL);
		if (!strstr(error_message(), cases[i][1]))
			FAIL_TEST("'%s': %s", cases[i][0], error_message());
	}
}
