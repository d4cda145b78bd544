/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/guest_kernel.h"

#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/guest/page_walk.h"

/* The GPA of GVA in the kernel's own page tables; 0: not mapped. */
static uint64_t translate(const struct guest_kernel *kernel, const struct guest_view *view,
			  uint64_t gva)
{
	struct guest_translation found;

	return guest_translate(view, &kernel->paging, gva, &found) ? 0 : found.gpa;
}

int guest_kernel_identify(struct guest_kernel *kernel, const struct guest_view *view)
{
	struct guest_kernel_identity *identity = &kernel->identity;
	struct symbol symbol;

	identity->gva = kernel->text_start;
	if (*kernel->version_banner && symbols_find_name(kernel->symbols, "linux_banner", &symbol))
		identity->gva = symbol.start;
	identity->gpa = translate(kernel, view, identity->gva);
	if (symbols_find_name(kernel->symbols, "jiffies_64", &symbol))
		identity->ticks_gpa = translate(kernel, view, symbol.start);
	return identity->gpa
		       ? 0
		       : error_set(-EAGAIN, "the guest's kernel does not map its own image (yet)");
}

static bool maps(const struct guest_kernel *kernel, const struct guest_view *view,
		 const struct guest_paging *paging)
{
	struct guest_translation found;

	return !guest_translate(view, paging, kernel->identity.gva, &found) &&
	       found.gpa == kernel->identity.gpa;
}

/* The image, and so the banner, is contiguous in physical memory. */
static bool has_banner(const struct guest_kernel *kernel, const struct guest_view *view)
{
	char banner[sizeof(kernel->version_banner)];
	size_t size = strlen(kernel->version_banner);

	return !guest_read_physical(view, kernel->identity.gpa, banner, size) &&
	       !memcmp(banner, kernel->version_banner, size);
}

bool guest_kernel_can_run(const struct guest_registers *registers)
{
	return registers->paging.efer & EFER_LMA || guest_paging_is_32bit(&registers->paging);
}

/* With KPTI the user half maps little more than the entry code: the kernel half is tried, too. */
bool guest_kernel_is_running(const struct guest_kernel *kernel, const struct guest_view *view,
			     const struct guest_registers *registers)
{
	struct guest_paging paging = registers->paging;
	bool mapped;

	if (!guest_kernel_can_run(registers))
		return false;
	mapped = maps(kernel, view, &paging);
	if (!mapped && paging.cr3 & CR3_PTI_USER) {
		paging.cr3 &= ~CR3_PTI_USER;
		mapped = maps(kernel, view, &paging);
	}
	return mapped && has_banner(kernel, view);
}

bool guest_kernel_ticks(const struct guest_kernel *kernel, const struct guest_view *view,
			uint64_t *ticks)
{
	return kernel->identity.ticks_gpa &&
	       !guest_read_physical(view, kernel->identity.ticks_gpa, ticks, sizeof(*ticks));
}

bool guest_kernels_equal(const struct guest_kernel *one, const struct guest_kernel *other)
{
	return one->identity.gva == other->identity.gva &&
	       one->identity.gpa == other->identity.gpa && one->text_start == other->text_start &&
	       !strcmp(one->version_banner, other->version_banner);
}
