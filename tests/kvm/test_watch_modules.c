/* SPDX-License-Identifier: Apache-2.0 */
/* A run's watch on a module's symbol while modules are loaded and unloaded. */
#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"
#include "tests/kvm/bare_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/cli/run_watch.h"

#define MODULE 0xffffffffc0400000ull

static struct guest_module module = { .name = "test_module", .start = MODULE, .size = 0x1000 };

static struct guest_kernel make_kernel(void)
{
	struct guest_kernel kernel = { .symbols = symbols_new(),
				       .per_cpu = symbols_new(),
				       .modules = &module,
				       .module_count = 1 };

	symbols_add(kernel.symbols, MODULE + 0x100, 0x20, 't', "function", "test_module");
	symbols_finish(kernel.symbols);
	symbols_finish(kernel.per_cpu);
	return kernel;
}

static enum run_watch_state state_of(struct run_watch *watch)
{
	struct run_watch_description description;

	CHECK(run_watch_describe(watch, 0, &description));
	return description.state;
}

static void check_returns(struct run_watch *watch, const struct guest_kernel *kernel)
{
	run_watch_kernel(watch, kernel);
	CHECK_EQUAL(state_of(watch), RUN_WATCH_WATCHING);
	run_watch_modules(watch, &module, 1);
	CHECK_EQUAL(state_of(watch), RUN_WATCH_WATCHING);
	run_watch_modules(watch, &module, 0);
	CHECK_EQUAL(state_of(watch), RUN_WATCH_WAITING);
	run_watch_turn(watch);
	run_watch_modules(watch, &module, 1);
	CHECK_EQUAL(state_of(watch), RUN_WATCH_WAITING);
	run_watch_kernel(watch, kernel);
	CHECK_EQUAL(state_of(watch), RUN_WATCH_WATCHING);
}

/* Nothing is armed or added until another kernel runs, which may be of the same build. */
static void check_unknown(struct run_watch *watch, const struct guest_kernel *kernel,
			  const struct watch_spec *spec)
{
	run_watch_modules(watch, NULL, 0);
	CHECK_EQUAL(state_of(watch), RUN_WATCH_WAITING);
	run_watch_kernel(watch, kernel);
	run_watch_turn(watch);
	CHECK_EQUAL(state_of(watch), RUN_WATCH_WAITING);
	CHECK_EQUAL(run_watch_add(watch, spec), -ENOENT);
	CHECK(strstr(error_message(), "test_module") != NULL);
	run_watch_no_kernel(watch);
	run_watch_kernel(watch, kernel);
	CHECK_EQUAL(state_of(watch), RUN_WATCH_WATCHING);
}

TEST(watch_modules, watch_follows_its_module)
{
	static struct run_options options = { .cpus = 1, .watch_count = 1 };
	struct guest_kernel kernel;
	struct run_watch *watch;
	int error;

	BARE_GUEST_REQUIRED();
	REQUIRE_EQUAL(watch_spec_parse(&options.watches[0], "function:x"), 0);
	error = run_watch_create(&watch, &options);
	if (error == -ENOTSUP)
		SKIP("%s", error_message());
	REQUIRE_EQUAL(error, 0);
	kernel = make_kernel();
	log_quiet(true);
	check_returns(watch, &kernel);
	check_unknown(watch, &kernel, &options.watches[0]);
	log_quiet(false);
	run_watch_destroy(watch);
	symbols_free(kernel.symbols);
	symbols_free(kernel.per_cpu);
}
