/* SPDX-License-Identifier: Apache-2.0 */
/* Headers that the user wants with each request: who may push, which tenant it is for. Any thread.
 */
#ifndef KVMSCOPE_DAEMON_PUSH_HEADERS_H
#define KVMSCOPE_DAEMON_PUSH_HEADERS_H

#include <curl/curl.h>
#include <stddef.h>

#define PUSH_HEADERS_MAX 8192 /* bytes of a file with them */

/*
 * Reads lines "Name: value"; empty ones and those that begin with '#' are left out. HEADERS gets a
 * list to be freed by curl_slist_free_all(), NULL if there are none. -EINVAL: a line is no header
 * (RFC 9110, sections 5.1 and 5.5); the message has its number, and nothing of it, as it may be a
 * secret. -ENOMEM.
 */
int push_headers_parse(const char *text, size_t size, struct curl_slist **headers);

/* The same from the file PATH, which nobody else may read: -EPERM. The errors of open(2). */
int push_headers_read(const char *path, struct curl_slist **headers);

#endif
