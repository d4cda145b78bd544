/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/browser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

/* Uses a profile of its own and disables everything that would access a network. */
#define CHROMIUM                                                                                             \
	"timeout 90 chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run "           \
	"--disable-background-networking --disable-component-update --disable-sync --enable-logging=stderr " \
	"--allow-file-access-from-files --virtual-time-budget=5000 --run-all-compositor-stages-before-draw --window-size=1280,800 "

bool browser_is_installed(void)
{
	return command_succeeds("chromium --version");
}

struct browser_page browser_open(const char *home, const char *url)
{
	struct browser_page opened;
	int status;

	opened.page = command_output(&status,
				     CHROMIUM "--user-data-dir=%s/profile --dump-dom '%s' 2>%s/log",
				     home, url, home);
	CHECK_EQUAL(status, 0);
	opened.console = command_output(NULL, "grep CONSOLE %s/log", home);
	return opened;
}

void browser_page_free(struct browser_page *opened)
{
	free(opened->page);
	free(opened->console);
}

void browser_show(struct browser_page *opened, const char *home, const char *file)
{
	char url[512];

	snprintf(url, sizeof(url), "file://%s/%s", home, file);
	*opened = browser_open(home, url);
	CHECK_STRING(opened->console, "");
}

void browser_check_shows(const char *text, const char *part)
{
	if (!strstr(text, part))
		FAIL_TEST("the page lacks \"%s\"", part);
}
