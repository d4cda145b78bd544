/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/push_request.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/printable.h"
#include "vmm/report/otlp.h"

#define TIMEOUT_S         30
#define CONNECT_TIMEOUT_S 10
#define ANSWER_MAX        1024 /* bytes of the store's answer that are kept */
#define ANSWER_SHOWN      256
#define WHY_SIZE          256
#define NAME_MAX_SIZE     1024

struct push_request {
	CURL *curl;
	CURLU *url;
	enum push_format format;
	const atomic_bool *stop;
	char host[DOMAIN_FILE_SIZE];
	char answer[ANSWER_MAX + 1];
	size_t answer_size;
	char error[CURL_ERROR_SIZE];
};

/* Keeps the beginning of the answer and ignores the rest. */
static size_t receive_answer(char *data, size_t unit, size_t count, void *context)
{
	struct push_request *request = context;

	for (size_t i = 0; i < count && request->answer_size < ANSWER_MAX; i++)
		request->answer[request->answer_size++] = data[i];
	request->answer[request->answer_size] = '\0';
	return unit * count;
}

static int check_stop(void *context, curl_off_t to_receive, curl_off_t received, curl_off_t to_send,
		      curl_off_t sent)
{
	return atomic_load(((struct push_request *)context)->stop);
}

static size_t send_profile(char *to, size_t unit, size_t count, void *context)
{
	ssize_t size = read(*(int *)context, to, unit * count);

	return size < 0 ? CURL_READFUNC_ABORT : (size_t)size;
}

/* The store closed the connection: the request is repeated on another one. */
static int rewind_profile(void *context, curl_off_t offset, int origin)
{
	return lseek(*(int *)context, offset, origin) < 0 ? CURL_SEEKFUNC_FAIL : CURL_SEEKFUNC_OK;
}

static bool has_part(CURLU *url, CURLUPart part)
{
	char *text;

	if (curl_url_get(url, part, &text, 0))
		return false;
	curl_free(text);
	return true;
}

static int append_path(CURLU *url, const char *ending)
{
	const size_t ending_length = strlen(ending);
	char path[2048], *there;
	size_t length;

	if (curl_url_get(url, CURLUPART_PATH, &there, 0))
		return -EINVAL;
	length = strlen(there);
	while (length && there[length - 1] == '/')
		length--;
	if (length >= ending_length &&
	    !strncmp(there + length - ending_length, ending, ending_length))
		length -= ending_length;
	snprintf(path, sizeof(path), "%.*s%s", (int)length, there, ending);
	curl_free(there);
	return curl_url_set(url, CURLUPART_PATH, path, 0) ? -EINVAL : 0;
}

static int check_url(struct push_request *request, const char *url)
{
	const char *ending;
	char *scheme;
	bool known;

	if (curl_url_set(request->url, CURLUPART_URL, url, 0) ||
	    curl_url_get(request->url, CURLUPART_SCHEME, &scheme, 0))
		return error_set(-EINVAL, "%s is not a URL like http://localhost:4040", url);
	known = !strcmp(scheme, "http") || !strcmp(scheme, "https");
	curl_free(scheme);
	if (!known)
		return error_set(-EINVAL, "%s is not a URL of http or https", url);
	if (has_part(request->url, CURLUPART_USER) || has_part(request->url, CURLUPART_PASSWORD))
		return error_set(
			-EINVAL,
			"the URL to push to has a user or a password in it: put \"Authorization: Basic ...\" "
			"into the header file instead");
	ending = request->format == PUSH_OTLP ? "/v1development/profiles" : "/ingest";
	return append_path(request->url, ending)
		       ? error_set(-EINVAL, "cannot push to the URL %s", url)
		       : 0;
}

/* Reported at the start, not for each request. libcurl copies the path. */
static int use_authorities(struct push_request *request, const char *path)
{
	if (!path)
		return 0;
	if (access(path, R_OK))
		return error_set(-errno, "cannot read the certificates in %s: %s", path,
				 strerror(errno));
	if (curl_easy_setopt(request->curl, CURLOPT_CAINFO, path) ||
	    curl_easy_setopt(request->curl, CURLOPT_CAPATH, NULL))
		return error_set(-ENOTSUP, "this libcurl does not support own certificates");
#if LIBCURL_VERSION_NUM >= 0x075700
	/* Otherwise the old file stays in use for a day after it is replaced. */
	curl_easy_setopt(request->curl, CURLOPT_CA_CACHE_TIMEOUT, 0L);
#endif
	return 0;
}

static void set_options(struct push_request *request)
{
	CURL *curl = request->curl;

	curl_easy_setopt(curl, CURLOPT_CURLU, request->url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)TIMEOUT_S);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "kvmscope/" KVMSCOPE_VERSION);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, request->error);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive_answer);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, request);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, check_stop);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, request);
}

int push_request_open(struct push_request **result, const char *url, enum push_format format,
		      const char *ca_file, const char *host, const atomic_bool *stop)
{
	struct push_request *request = calloc(1, sizeof(*request));
	int error;

	if (!request)
		return error_set(-ENOMEM, "no memory to push");
	request->curl = curl_easy_init();
	request->url = curl_url();
	request->format = format;
	request->stop = stop;
	domain_name_escape(host, request->host);
	error = request->curl && request->url ? check_url(request, url)
					      : error_set(-ENOMEM, "no memory to push");
	if (!error)
		error = use_authorities(request, ca_file);
	if (error) {
		push_request_close(request);
		return error;
	}
	set_options(request);
	*result = request;
	return 0;
}

void push_request_close(struct push_request *request)
{
	if (!request)
		return;
	curl_easy_cleanup(request->curl);
	curl_url_cleanup(request->url);
	free(request);
}

/* Labels end at ',' and '}', which cannot be escaped (api/model/labelset/labelset.go): the domain
 * is written as in file names. */
static void describe(const struct push_request *request, const struct push_item *item,
		     char name[NAME_MAX_SIZE])
{
	int length = snprintf(name, NAME_MAX_SIZE, "name=kvmscope{host=%s,domain=%s", request->host,
			      item->domain);

	if (item->vcpu != PUSH_VCPU_UNKNOWN)
		length += snprintf(name + length, NAME_MAX_SIZE - (size_t)length, ",vcpu=%" PRIu32,
				   item->vcpu);
	snprintf(name + length, NAME_MAX_SIZE - (size_t)length, "}");
}

/* The store uses whole seconds: from the one that begins with FROM to the one that ends with
 * UNTIL. */
static int set_query(struct push_request *request, const struct push_item *item)
{
	char query[NAME_MAX_SIZE], times[128];

	describe(request, item, query);
	snprintf(times, sizeof(times),
		 "from=%" PRIu64 "&until=%" PRIu64 "&spyName=kvmscope&sampleRate=%" PRIu32,
		 item->from / 1000, (item->until + 999) / 1000, item->rate);
	if (curl_url_set(request->url, CURLUPART_QUERY, times, 0) ||
	    curl_url_set(request->url, CURLUPART_QUERY, query, CURLU_APPENDQUERY | CURLU_URLENCODE))
		return error_set(-ENOMEM, "no memory for a request");
	return 0;
}

static curl_mime *make_form(struct push_request *request, int *fd, uint64_t size)
{
	curl_mime *form = curl_mime_init(request->curl);
	curl_mimepart *part = form ? curl_mime_addpart(form) : NULL;

	if (part && !curl_mime_name(part, "profile") &&
	    !curl_mime_filename(part, "profile.pprof") &&
	    !curl_mime_type(part, "application/octet-stream") &&
	    !curl_mime_data_cb(part, (curl_off_t)size, send_profile, rewind_profile, NULL, fd))
		return form;
	curl_mime_free(form);
	error_set(-ENOMEM, "no memory for a request");
	return NULL;
}

static void set_error(const struct push_request *request, CURLcode code)
{
	const char *why = *request->error ? request->error : curl_easy_strerror(code);

	if (code == CURLE_PEER_FAILED_VERIFICATION)
		error_set(-EIO, "the store's certificate is not trusted: %s; see ca-file of [push]",
			  why);
	else if (code == CURLE_SSL_CACERT_BADFILE)
		error_set(-EIO, "the ca-file of [push] has no usable certificates: %s", why);
	else
		error_set(-EIO, "%s", why);
}

/* OpenTelemetry's answer of 200 may report that it did not take the profiles. */
static enum push_outcome judge_answer(const struct push_request *request)
{
	char why[WHY_SIZE];

	if (request->format != PUSH_OTLP ||
	    !otlp_rejected(request->answer, request->answer_size, why, sizeof(why)))
		return PUSH_ACCEPTED;
	error_set(-EIO, "the store rejected it: %s", why);
	return PUSH_REJECTED;
}

static enum push_outcome judge(struct push_request *request, CURLcode code)
{
	long status = 0;

	if (code) {
		set_error(request, code);
		return PUSH_FAILED;
	}
	curl_easy_getinfo(request->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status / 100 == 2)
		return judge_answer(request);
	for (size_t i = 0; i < request->answer_size; i++)
		if (!isprint((unsigned char)request->answer[i]))
			request->answer[i] = ' ';
	error_set(-EIO, "the store answered %ld: %.*s", status, ANSWER_SHOWN, request->answer);
	return status == 400 || status == 413 || status == 415 || status == 422 ? PUSH_REFUSED
										: PUSH_FAILED;
}

static enum push_outcome perform(struct push_request *request, struct curl_slist *headers)
{
	CURLcode code;

	request->answer_size = 0;
	request->answer[0] = request->error[0] = '\0';
	curl_easy_setopt(request->curl, CURLOPT_HTTPHEADER, headers);
	code = curl_easy_perform(request->curl);
	curl_easy_setopt(request->curl, CURLOPT_HTTPHEADER, NULL);
	return judge(request, code);
}

static enum push_outcome send_form(struct push_request *request, const struct push_item *item,
				   int fd, uint64_t size, struct curl_slist *headers)
{
	enum push_outcome outcome;
	curl_mime *form;

	if (set_query(request, item))
		return PUSH_FAILED;
	form = make_form(request, &fd, size);
	if (!form)
		return PUSH_FAILED;
	curl_easy_setopt(request->curl, CURLOPT_MIMEPOST, form);
	outcome = perform(request, headers);
	curl_easy_setopt(request->curl, CURLOPT_MIMEPOST, NULL);
	curl_mime_free(form);
	return outcome;
}

/* The same for a profile that is sent again. */
static void identify(const struct push_request *request, const struct push_item *item,
		     uint8_t id[OTLP_ID_SIZE])
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	char text[NAME_MAX_SIZE];
	int length = snprintf(text, sizeof(text), "%s %s %" PRIu32 " %" PRIu64 " %" PRIu64,
			      request->host, item->domain, item->vcpu, item->from, item->until);

	SHA256((const unsigned char *)text, (size_t)length, digest);
	memcpy(id, digest, OTLP_ID_SIZE);
}

/* The body; the caller frees it. A profile that cannot be converted is refused. */
static enum push_outcome make_body(const struct push_request *request, const struct push_item *item,
				   const void *pprof, size_t size, uint8_t **body,
				   size_t *body_size)
{
	char domain[DOMAIN_FILE_SIZE];
	struct otlp_source source = { .domain = domain, .host = request->host, .vcpu = item->vcpu };
	int error;

	if (domain_name_unescape(item->domain, domain))
		snprintf(domain, sizeof(domain), "%s", item->domain);
	make_printable(domain);
	identify(request, item, source.id);
	error = otlp_from_pprof(pprof, size, &source, body, body_size);
	return !error ? PUSH_ACCEPTED : error == -EINVAL ? PUSH_REFUSED : PUSH_FAILED;
}

/* HEADERS and the body's type; the caller frees it. */
static struct curl_slist *add_type(const struct curl_slist *headers)
{
	struct curl_slist *all = curl_slist_append(NULL, "Content-Type: application/x-protobuf");

	for (; headers && all; headers = headers->next)
		curl_slist_append(all, headers->data);
	return all;
}

static enum push_outcome send_body(struct push_request *request, const uint8_t *body, size_t size,
				   const struct curl_slist *headers)
{
	struct curl_slist *all = add_type(headers);
	enum push_outcome outcome;

	curl_easy_setopt(request->curl, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(request->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)size);
	outcome = perform(request, all);
	curl_slist_free_all(all);
	return outcome;
}

static enum push_outcome send_otlp(struct push_request *request, const struct push_item *item,
				   int fd, uint64_t size, const struct curl_slist *headers)
{
	void *pprof = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	enum push_outcome outcome;
	uint8_t *body = NULL;
	size_t body_size;

	if (pprof == MAP_FAILED) {
		error_set(-errno, "cannot read a profile: %s", strerror(errno));
		return PUSH_FAILED;
	}
	outcome = make_body(request, item, pprof, size, &body, &body_size);
	munmap(pprof, size);
	if (outcome == PUSH_ACCEPTED)
		outcome = send_body(request, body, body_size, headers);
	free(body);
	return outcome;
}

enum push_outcome push_request_send(struct push_request *request, const struct push_item *item,
				    int fd, uint64_t size, struct curl_slist *headers)
{
	return request->format == PUSH_OTLP ? send_otlp(request, item, fd, size, headers)
					    : send_form(request, item, fd, size, headers);
}

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

static int read_headers(int fd, const char *path, char text[PUSH_HEADERS_MAX + 1], size_t *size)
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
	error = read_headers(fd, path, text, &size);
	close(fd);
	if (!error)
		error = push_headers_parse(text, size, headers);
	explicit_bzero(text, sizeof(text));
	return error == -EINVAL ? error_set(error, "%s: %s", path, error_message()) : error;
}
