/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the profile in a page of kvmscope export --format html. */
#ifndef KVMSCOPE_TESTS_E2E_FLAME_PAGE_H
#define KVMSCOPE_TESTS_E2E_FLAME_PAGE_H

#include <stddef.h>

/* The kinds of vmm/report/web/profile.js. */
enum flame_page_kind { FLAME_PAGE_PROCESS, FLAME_PAGE_KERNEL, FLAME_PAGE_MODULE, FLAME_PAGE_USER };

struct flame_page;

/* NULL: TEXT, which the page needs no longer, has no profile. */
struct flame_page *flame_page_read(const char *text);
void flame_page_free(struct flame_page *page);

/* Number of samples of PROCESS; NULL: of all processes. */
unsigned long flame_page_samples(const struct flame_page *page, const char *process);

/* Number of those samples that are in the function NAME of KIND or its callees. */
unsigned long flame_page_samples_in(const struct flame_page *page, const char *process,
				    const char *name, enum flame_page_kind kind);

#endif
