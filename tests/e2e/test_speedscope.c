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

	recorded_guest_export(named, "guest.speedscope.json", "");
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

TEST(speedscope, shows_vcpus_threads_and_functions)
{
	struct named_guest named;
	struct browser_page opened;

	NEED_BROWSER;
	if (access(SPEEDSCOPE, R_OK))
		SKIP("npm could not fetch speedscope, see build/readers/npm.log");
	recorded_guest_begin(&named, "vcpu 0", PERSPECTIVE_GUEST);
	opened = open_export(&named);
	browser_check_shows(opened.console, "Importing as speedscope json file");
	browser_check_shows(opened.page, "<span>vCPU 0</span>");
	browser_check_shows(opened.page, "<span>vCPU 1</span>");
	browser_check_shows(opened.page, ">1.50s</td>"); /* of each: 1500 samples at 1 kHz */
	browser_check_shows(opened.page, ">1.50s (100%)<");
	browser_check_shows(opened.page, "</span>vcpu 0</td>");
	browser_check_shows(opened.page, "</span>guest_function_0</td>");
	browser_check_shows(opened.page, "title=\"[fake_module]\"");
	browser_check_shows(opened.page, "</span>module_function_0</td>");
	browser_page_free(&opened);
	named_guest_end(&named);
}

TEST(speedscope, keeps_unsymbolized_images_apart)
{
	struct named_guest named;
	struct browser_page opened;
	int status;

	NEED_BROWSER;
	if (access(SPEEDSCOPE, R_OK))
		SKIP("npm could not fetch speedscope, see build/readers/npm.log");
	recorded_guest_begin(&named, "<b>\"\\'&\t", PERSPECTIVE_GUEST);
	free(command_output(&status, "rm -r %s/.debug", named.home));
	opened = open_export(&named);
	browser_check_shows(opened.page, "</span>[kernel.kallsyms]</td>");
	browser_check_shows(opened.page, "</span>[fake_module]</td>");
	browser_check_shows(opened.page, "</span>[unknown]</td>");
	browser_check_shows(opened.page, "</span>&lt;b&gt;\"\\'&amp;?</td>");
	browser_page_free(&opened);
	named_guest_end(&named);
}
