// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/qmp_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* GPAs have at most 52 bits (SDM vol. 3A 4.1.4). */
#define GPA_END  (1ull << 52)
#define LINE_MAX 256

/* The next line of TEXT, as far as it fits; false: there is none. */
static bool next_line(const char **text, char *line, size_t size)
{
	size_t length = strcspn(*text, "\r\n");

	if (!**text)
		return false;
	snprintf(line, size, "%.*s", length < size ? (int)length : (int)size - 1, *text);
	*text += length;
	if (**text == '\r')
		++*text;
	if (**text == '\n')
		++*text;
	return true;
}

/* "  0000000000100000-000000000fffffff (prio 0, ram): pc.ram @0000000000100000" */
static bool parse_range(const char *line, struct vmm_slot *slot)
{
	uint64_t first, last;
	char kind[8];

	if (sscanf(line, " %" SCNx64 "-%" SCNx64 " (prio %*d, %7[a-z]", &first, &last, kind) != 3 ||
	    (strcmp(kind, "ram") != 0 && strcmp(kind, "rom") != 0) || last < first ||
	    last >= GPA_END)
		return false;
	*slot = (struct vmm_slot){ .gpa = first, .size = last - first + 1 };
	return true;
}

/* The text of the view that " AS "memory", root: system" stands in: up to an empty line. */
static const char *find_view(const char *text)
{
	char line[LINE_MAX];

	while (next_line(&text, line, sizeof(line)))
		if (!strncmp(line, " AS \"memory\",", strlen(" AS \"memory\",")))
			return text;
	return NULL;
}

size_t qmp_parse_memory(const char *text, struct vmm_slot *slots, size_t max)
{
	const char *view = find_view(text);
	char line[LINE_MAX];
	uint64_t end = 0;
	size_t count = 0;

	while (view && next_line(&view, line, sizeof(line)) && *line) {
		struct vmm_slot slot;

		if (!parse_range(line, &slot))
			continue;
		if (count == max || slot.gpa < end)
			return 0;
		slots[count++] = slot;
		end = slot.gpa + slot.size;
	}
	return count;
}

bool qmp_parse_hva(const char *text, uint64_t *hva)
{
	const char *at = strstr(text, ") is 0x");

	return at && sscanf(at, ") is 0x%" SCNx64, hva) == 1 && *hva && *hva <= INT64_MAX;
}
