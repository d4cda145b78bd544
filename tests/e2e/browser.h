/* SPDX-License-Identifier: Apache-2.0 */
/* Opens pages in headless Chromium, without a network. Main thread. */
#ifndef KVMSCOPE_TESTS_E2E_BROWSER_H
#define KVMSCOPE_TESTS_E2E_BROWSER_H

#include <stdbool.h>

/* The page as the browser shows it after a while, and the error messages of its scripts. */
struct browser_page {
	char *page;
	char *console;
};

bool browser_is_installed(void);

#define NEED_BROWSER                                                                               \
	do {                                                                                       \
		if (!browser_is_installed())                                                       \
			SKIP("Chromium is not installed");                                         \
	} while (0)

/* HOME is a directory for the browser's files. Free with browser_page_free(). */
struct browser_page browser_open(const char *home, const char *url);
void browser_page_free(struct browser_page *opened);

/* Opens FILE, which is in HOME and may have a fragment; errors of its scripts fail the test. */
void browser_show(struct browser_page *opened, const char *home, const char *file);

/* Fails the test if TEXT, of a page, lacks PART. */
void browser_check_shows(const char *text, const char *part);

#endif
