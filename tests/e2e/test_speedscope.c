/* SPDX-License-Identifier: Apache-2.0 */
/* speedscope's own page opens our export. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/browser.h"
#include "tests/e2e/recorded_guest.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

#define SPEEDSCOPE "build/readers/node_modules/speedscope/dist/release/index.html"

/* As speedscope's bin/cli.mjs opens a file; with the table of functions of the longest profile. */
static struct browser_page open_export(const struct named_guest *named)
{
	char url[2048], directory[1024];
	int status;

	free(command_output(&status, "build/kvmscope export -o %s/guest.speedscope.json %s 2>&1",
			    named->home, named->path));
	CHECK_EQUAL(status, 0);
	free(command_output(&status,
			    "cd %s && printf 'speedscope.loadFileFromBase64(\"guest\", \"%%s\")' "
			    "$(base64 -w0 guest.speedscope.json) > guest.js",
			    named->home));
	CHECK_EQUAL(status, 0);
	CHECK(getcwd(directory, sizeof(directory)));
	snprintf(url, sizeof(url),
		 "file://%s/" SPEEDSCOPE "#view=sandwich&localProfilePath=%s/guest.js", directory,
		 named->home);
	return browser_open(named->home, url);
}

static void check_shows(const char *page, const char *what)
{
	if (!strstr(page, what))
		FAIL_TEST("speedscope does not show \"%s\"", what);
}

static bool can_open(void)
{
	return !access(SPEEDSCOPE, R_OK) && browser_is_installed();
}

TEST(speedscope, shows_vcpus_threads_and_functions)
{
	struct named_guest named;
	struct browser_page opened;

	if (!can_open())
		SKIP("Chromium is not installed, or npm could not fetch speedscope");
	recorded_guest_begin(&named, "vcpu 0", PERSPECTIVE_GUEST);
	opened = open_export(&named);
	check_shows(opened.console, "Importing as speedscope json file");
	check_shows(opened.page, "<span>vCPU 0</span>");
	check_shows(opened.page, "<span>vCPU 1</span>");
	check_shows(opened.page, ">1.50s</td>"); /* of each: 1500 samples at 1 kHz */
	check_shows(opened.page, ">1.50s (100%)<");
	check_shows(opened.page, "</span>vcpu 0</td>");
	check_shows(opened.page, "</span>guest_function_0</td>");
	check_shows(opened.page, "title=\"[fake_module]\"");
	check_shows(opened.page, "</span>module_function_0</td>");
	browser_page_free(&opened);
	named_guest_end(&named);
}

TEST(speedscope, keeps_unsymbolized_images_apart)
{
	struct named_guest named;
	struct browser_page opened;
	int status;

	if (!can_open())
		SKIP("Chromium is not installed, or npm could not fetch speedscope");
	recorded_guest_begin(&named, "<b>\"\\'&\t", PERSPECTIVE_GUEST);
	free(command_output(&status, "rm -r %s/.debug", named.home));
	opened = open_export(&named);
	check_shows(opened.page, "</span>[kernel.kallsyms]</td>");
	check_shows(opened.page, "</span>[fake_module]</td>");
	check_shows(opened.page, "</span>[unknown]</td>");
	check_shows(opened.page, "</span>&lt;b&gt;\"\\'&amp;?</td>");
	browser_page_free(&opened);
	named_guest_end(&named);
}
