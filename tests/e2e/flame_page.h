/* SPDX-License-Identifier: Apache-2.0 */
/* The profile in a page of kvmscope export --format html. */
#ifndef KVMSCOPE_TESTS_E2E_FLAME_PAGE_H
#define KVMSCOPE_TESTS_E2E_FLAME_PAGE_H

#include <stddef.h>

/* As vmm/report/web/profile.js has them. */
enum flame_page_kind { FLAME_PAGE_PROCESS, FLAME_PAGE_KERNEL, FLAME_PAGE_MODULE, FLAME_PAGE_USER };

struct flame_page;

/* NULL: TEXT, which the page needs no longer, has no profile. */
struct flame_page *flame_page_read(const char *text);
void flame_page_free(struct flame_page *page);

/* Samples of PROCESS; NULL: of all. */
unsigned long flame_page_samples(const struct flame_page *page, const char *process);

/* Of these, those in the function NAME of KIND, or in what it calls. */
unsigned long flame_page_samples_in(const struct flame_page *page, const char *process,
				    const char *name, enum flame_page_kind kind);

#endif
