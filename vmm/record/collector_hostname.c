/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_kernel_parts.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/guest/page_walk.h"

/* Size of the strings of struct new_utsname (include/uapi/linux/utsname.h). */
#define FIELD    ((size_t)65)
#define NODENAME (1 * FIELD)
#define RELEASE  (2 * FIELD)

#define OFFSET_MAX 64

static bool is_name(const char *text)
{
	size_t size = strnlen(text, FIELD);

	for (size_t i = 0; i < size; i++)
		if (!isalnum((unsigned char)text[i]) && !strchr("-._", text[i]))
			return false;
	return size && size < FIELD;
}

int collector_hostname(const struct guest_kernel *kernel, const struct guest_view *view,
		       char hostname[COLLECTOR_HOSTNAME_SIZE])
{
	char bytes[OFFSET_MAX + 3 * FIELD + 1] = { 0 };
	struct symbol symbol;

	if (!symbols_find_name(kernel->symbols, "init_uts_ns", &symbol) ||
	    guest_read_virtual(view, &kernel->paging, symbol.start, bytes, sizeof(bytes) - 1))
		return error_set(-ENOENT, "the guest's host name is not in its symbols");
	for (size_t offset = 0; offset < OFFSET_MAX; offset += 4) {
		if (strcmp(bytes + offset, "Linux") != 0 ||
		    strcmp(bytes + offset + RELEASE, kernel->release) != 0)
			continue;
		if (!is_name(bytes + offset + NODENAME))
			break; /* "(none)": not set */
		memcpy(hostname, bytes + offset + NODENAME, COLLECTOR_HOSTNAME_SIZE);
		return 0;
	}
	return error_set(-ENOENT, "the guest has no host name");
}
