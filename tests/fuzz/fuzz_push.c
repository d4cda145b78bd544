/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the files that a push reads: file names in the spool, and the user's headers. */
#include <assert.h>
#include <curl/curl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/daemon/push_request.h"
#include "vmm/daemon/push_spool.h"
#include "vmm/daemon/recording_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file name that can be parsed is the one that would be written. */
static void check_file_name(const char *text)
{
	char name[PUSH_NAME_SIZE], recording[RECORDING_NAME_SIZE];
	enum recording_state state;
	struct push_item item;
	uint64_t time;

	if (push_item_parse(text, &item)) {
		push_item_name(&item, name);
		assert(!strcmp(name, text));
	}
	if (recording_file_parse(text, &time, &state)) {
		recording_file_name(time, state, recording);
		assert(!strcmp(recording, text));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	struct curl_slist *headers;

	check_file_name(text);
	free(text);
	if (push_headers_parse((const char *)data, size, &headers))
		assert(!headers);
	for (const struct curl_slist *header = headers; header; header = header->next)
		assert(strchr(header->data, ':') && !strpbrk(header->data, "\r\n"));
	curl_slist_free_all(headers);
	return 0;
}
