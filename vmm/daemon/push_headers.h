/* SPDX-License-Identifier: Apache-2.0 */
/* Headers that the user adds to each request, such as for authorization. Any thread. */
#ifndef KVMSCOPE_DAEMON_PUSH_HEADERS_H
#define KVMSCOPE_DAEMON_PUSH_HEADERS_H

#include <curl/curl.h>
#include <stddef.h>

#define PUSH_HEADERS_MAX 8192 /* bytes of a file */

/*
 * Parses lines "Name: value"; empty ones and those that begin with '#' are skipped. HEADERS gets a
 * list to free by curl_slist_free_all(), NULL if there are none. -EINVAL: a line is not a header
 * (RFC 9110, sections 5.1 and 5.5); the message has its number but not its text, which may be a
 * secret. -ENOMEM.
 */
int push_headers_parse(const char *text, size_t size, struct curl_slist **headers);

/* The same for the file PATH, which nobody else may read: -EPERM. The errors of open(2). */
int push_headers_read(const char *path, struct curl_slist **headers);

#endif
