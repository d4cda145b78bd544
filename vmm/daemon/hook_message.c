/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/hook_message.h"

#include <errno.h>
#include <string.h>

#include "shared/error.h"

/* The string at *TEXT, which is advanced past it; NULL: it does not end, or is too long. */
static const char *next_word(const char **text, size_t *size)
{
	size_t length = strnlen(*text, *size);
	const char *word = *text;

	if (length == *size || length >= HOOK_WORD_MAX)
		return NULL;
	*text += length + 1;
	*size -= length + 1;
	return word;
}

int hook_message_parse(struct hook_message *message, const char *text, size_t size)
{
	const char *magic = next_word(&text, &size);

	if (!magic || strcmp(magic, HOOK_MAGIC) != 0)
		return error_set(-EINVAL, "not a message of this version's hook");
	message->domain = next_word(&text, &size);
	message->operation = message->domain ? next_word(&text, &size) : NULL;
	if (!message->operation || !*message->domain)
		return error_set(-EINVAL, "a message of the hook ends too early");
	message->xml = text;
	message->xml_size = size;
	return 0;
}
