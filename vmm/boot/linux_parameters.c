/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/linux_parameters.h"

#include <string.h>

size_t linux_parameter_find(const char *line, const char *name, const char **value)
{
	const char *word = line;

	*value = NULL;
	while (*(word += strspn(word, " "))) {
		size_t length = strcspn(word, " ");

		if (length == 2 && !strncmp(word, "--", 2))
			break;
		if (!strncmp(word, name, strlen(name)))
			*value = word + strlen(name);
		word += length;
	}
	return (size_t)(word - line);
}
