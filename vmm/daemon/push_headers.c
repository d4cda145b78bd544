/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/push_headers.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"

/* RFC 9110, 5.6.2: a token. */
static bool is_token(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!isalnum((unsigned char)text[i]) &&
		    (!text[i] || !strchr("!#$%&'*+-.^_`|~", text[i])))
			return false;
	return size;
}

static bool is_value(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)text[i] < ' ' && text[i] != '\t')
			return false;
	return memchr(text, 0x7f, size) == NULL;
}

static bool is_header(const char *line, size_t size)
{
	const char *colon = memchr(line, ':', size);

	return colon && is_token(line, (size_t)(colon - line)) &&
	       is_value(colon, size - (size_t)(colon - line));
}

static int add(struct curl_slist **headers, const char *line, size_t size)
{
	char header[PUSH_HEADERS_MAX + 1];
	struct curl_slist *longer;

	snprintf(header, sizeof(header), "%.*s", (int)size, line);
	longer = curl_slist_append(*headers, header);
	if (!longer)
		return error_set(-ENOMEM, "no memory for headers");
	*headers = longer;
	return 0;
}

/* LINE does not include its newline. */
static int add_line(struct curl_slist **headers, unsigned int number, const char *line, size_t size)
{
	if (size && line[size - 1] == '\r')
		size--;
	if (!size || *line == '#')
		return 0;
	if (!is_header(line, size))
		return error_set(-EINVAL,
				 "line %u is not a header like \"Authorization: Bearer ...\"",
				 number);
	return add(headers, line, size);
}

int push_headers_parse(const char *text, size_t size, struct curl_slist **headers)
{
	unsigned int number = 1;
	int error = 0;

	*headers = NULL;
	if (size > PUSH_HEADERS_MAX)
		return error_set(-EINVAL, "headers of %zu bytes are too long", size);
	while (size && !error) {
		const char *newline = memchr(text, '\n', size);
		size_t length = newline ? (size_t)(newline - text) : size;

		error = add_line(headers, number++, text, length);
		length += newline ? 1 : 0;
		text += length;
		size -= length;
	}
	if (error) {
		curl_slist_free_all(*headers);
		*headers = NULL;
	}
	return error;
}

static int read_file(int fd, const char *path, char text[PUSH_HEADERS_MAX + 1], size_t *size)
{
	struct stat status;
	ssize_t length;

	if (fstat(fd, &status))
		return error_set(-errno, "cannot stat %s: %s", path, strerror(errno));
	if (status.st_mode & 077)
		return error_set(-EPERM, "%s is readable by others: chmod 600 it", path);
	length = read(fd, text, PUSH_HEADERS_MAX + 1);
	if (length < 0)
		return error_set(-errno, "cannot read %s: %s", path, strerror(errno));
	*size = (size_t)length;
	return 0;
}

int push_headers_read(const char *path, struct curl_slist **headers)
{
	char text[PUSH_HEADERS_MAX + 1];
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;
	size_t size = 0;

	*headers = NULL;
	if (fd < 0)
		return error_set(-errno, "cannot read %s: %s", path, strerror(errno));
	error = read_file(fd, path, text, &size);
	close(fd);
	if (!error)
		error = push_headers_parse(text, size, headers);
	explicit_bzero(text, sizeof(text));
	return error == -EINVAL ? error_set(error, "%s: %s", path, error_message()) : error;
}
