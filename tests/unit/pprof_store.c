/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/pprof_store.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/unconst.h"
#include "tests/unit/pprof_rules.h"
#include "tests/unit/shim/test.h"

#define WAIT_MS 60000

struct request {
	struct MHD_PostProcessor *form;
	char *profile;
	size_t size;
	bool other; /* the body had something other than a part "profile" with a file */
};

static enum MHD_Result parse_part(void *context, enum MHD_ValueKind kind, const char *key,
				  const char *filename, const char *type, const char *encoding,
				  const char *data, uint64_t offset, size_t size)
{
	struct request *request = context;

	request->other |=
		strcmp(key, "profile") != 0 || !filename || strcmp(filename, "profile.pprof") != 0;
	request->profile = realloc(request->profile, offset + size + 1);
	if (!request->profile)
		abort();
	memcpy(request->profile + offset, data, size);
	request->size = offset + size;
	return MHD_YES;
}

static void end_request(void *context, struct MHD_Connection *connection, void **data,
			enum MHD_RequestTerminationCode how)
{
	struct request *request = *data;

	if (!request)
		return;
	if (request->form)
		MHD_destroy_post_processor(request->form);
	free(request->profile);
	free(request);
}

static enum MHD_Result answer_with(struct MHD_Connection *connection, unsigned int status)
{
	static char text[] = "told by the\ntest";
	struct MHD_Response *response =
		MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result = MHD_queue_response(connection, status, response);

	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result answer_with_body(const struct pprof_store *store,
					struct MHD_Connection *connection, unsigned int status)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		store->answer_size, unconst(store->answer), MHD_RESPMEM_MUST_COPY);
	enum MHD_Result result = MHD_queue_response(connection, status, response);

	MHD_destroy_response(response);
	return result;
}

static void copy_value(struct MHD_Connection *connection, enum MHD_ValueKind kind, const char *key,
		       char *value, size_t size)
{
	const char *found = MHD_lookup_connection_value(connection, kind, key);

	snprintf(value, size, "%s", found ? found : "");
}

static void copy_argument(struct MHD_Connection *connection, const char *key, char *value,
			  size_t size)
{
	copy_value(connection, MHD_GET_ARGUMENT_KIND, key, value, size);
}

static void keep(struct pprof_store *store, struct MHD_Connection *connection,
		 struct request *request)
{
	struct pprof_received *to = &store->received[store->count];

	copy_argument(connection, "name", to->name, sizeof(to->name));
	copy_argument(connection, "from", to->from, sizeof(to->from));
	copy_argument(connection, "until", to->until, sizeof(to->until));
	copy_argument(connection, "sampleRate", to->rate, sizeof(to->rate));
	copy_argument(connection, "spyName", to->spy, sizeof(to->spy));
	copy_value(connection, MHD_HEADER_KIND, "X-Scope-OrgID", to->tenant, sizeof(to->tenant));
	copy_value(connection, MHD_HEADER_KIND, "Authorization", to->authorization,
		   sizeof(to->authorization));
	to->profile = request->profile;
	to->size = request->size;
	request->profile = NULL;
	store->count++;
}

/* Rejected if a label occurs twice or is one of those that Pyroscope sets itself. */
static bool is_label(const char *text, size_t length, const char *before, size_t before_length)
{
	char name[64], prefix[sizeof(name) + 2];

	if (!length || length >= sizeof(name) || text[length] != '=' || *text == '_')
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)length, text);
	snprintf(prefix, sizeof(prefix), "%s=", name);
	return strcmp(name, "service_name") != 0 && strcmp(name, "pyroscope_spy") != 0 &&
	       !memmem(before, before_length, prefix, strlen(prefix));
}

/* APPLICATION{KEY=VALUE,...}: nothing can be escaped (api/model/labelset/labelset.go). */
static bool is_label_set(const char *text)
{
	const char *begin = text;
	size_t length = strcspn(text, "{");

	if (!length || text[length] != '{')
		return false;
	do {
		text += length + 1;
		length = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
		if (!is_label(text, length, begin, (size_t)(text - begin)))
			return false;
		text += length + 1;
		length = strcspn(text, ",{}=");
	} while (length && text[length] == ',');
	return length && !strcmp(text + length, "}");
}

/* pkg/og/util/attime: 8 digits would be a date, and more than 10 are not seconds. */
static bool is_time(const char *text)
{
	return strlen(text) == 10 && strspn(text, "0123456789") == 10;
}

static bool is_rate(const char *text)
{
	return *text && strlen(text) == strspn(text, "0123456789") && strtoul(text, NULL, 10);
}

static bool is_word(const char *text)
{
	return isalpha((unsigned char)*text) && !strpbrk(text, " ,{}");
}

/*
 * The parameters that pkg/ingester/pyroscope/ingest_handler.go reads, except those that it ignores
 * for a pprof: units and aggregationType. With format=pprof the body would be the profile itself.
 */
static const struct parameter {
	const char *name;
	bool (*is_right)(const char *value);
} parameters[] = {
	{ "name", is_label_set },  { "from", is_time },    { "until", is_time },
	{ "sampleRate", is_rate }, { "spyName", is_word },
};

#define PARAMETERS (sizeof(parameters) / sizeof(*parameters))

/* Counts valid parameters in *RIGHT; an unknown or invalid one ends the iteration. */
static enum MHD_Result check_parameter(void *right, enum MHD_ValueKind kind, const char *key,
				       const char *value)
{
	for (size_t i = 0; value && i < PARAMETERS; i++)
		if (!strcmp(key, parameters[i].name) && parameters[i].is_right(value)) {
			++*(size_t *)right;
			return MHD_YES;
		}
	fprintf(stderr, "the store knows no %s=%s\n", key, value ? value : "");
	*(size_t *)right = PARAMETERS + 1;
	return MHD_NO;
}

static bool has_good_query(struct MHD_Connection *connection)
{
	char from[32], until[32];
	size_t right = 0;

	MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, check_parameter, &right);
	copy_argument(connection, "from", from, sizeof(from));
	copy_argument(connection, "until", until, sizeof(until));
	return right == PARAMETERS && strcmp(from, until) < 0;
}

/* A body that is a form is a pprof; the boundary separates its parts. */
static bool is_form(struct MHD_Connection *connection)
{
	char type[128];
	const char *boundary;

	copy_value(connection, MHD_HEADER_KIND, "Content-Type", type, sizeof(type));
	boundary = strstr(type, " boundary=");
	return !strncmp(type, "multipart/form-data;", 20) && boundary && strlen(boundary) > 10;
}

static bool is_good_profile(struct MHD_Connection *connection, const struct request *request)
{
	char from[32], until[32];
	const char *broken;

	copy_argument(connection, "from", from, sizeof(from));
	copy_argument(connection, "until", until, sizeof(until));
	broken = pprof_rules_broken(request->profile, request->size, atoll(from), atoll(until));
	if (broken)
		fprintf(stderr, "the store rejects a profile: %s\n", broken);
	return !broken;
}

static bool is_protobuf(struct MHD_Connection *connection)
{
	char type[128];

	copy_value(connection, MHD_HEADER_KIND, "Content-Type", type, sizeof(type));
	return !strcmp(type, "application/x-protobuf");
}

static bool is_good(struct MHD_Connection *connection, const struct request *request)
{
	return has_good_query(connection) && is_form(connection) && !request->other &&
	       is_good_profile(connection, request);
}

static enum MHD_Result finish(struct pprof_store *store, struct MHD_Connection *connection,
			      struct request *request)
{
	unsigned int status = store->status;
	char name[1024];

	store->requests++;
	while (store->hold)
		usleep(1000);
	copy_argument(connection, "name", name, sizeof(name));
	if (store->otlp ? !is_protobuf(connection) : !is_good(connection, request))
		status = 400;
	else if (store->refuses && strstr(name, store->refuses))
		status = 422;
	pthread_mutex_lock(&store->lock);
	if (status == 200 && store->count < PPROF_STORE_MAX)
		keep(store, connection, request);
	pthread_mutex_unlock(&store->lock);
	return store->answer ? answer_with_body(store, connection, status)
			     : answer_with(connection, status);
}

static enum MHD_Result append(struct request *request, const char *data, size_t *size)
{
	request->profile = realloc(request->profile, request->size + *size);
	if (!request->profile)
		abort();
	memcpy(request->profile + request->size, data, *size);
	request->size += *size;
	*size = 0;
	return MHD_YES;
}

static enum MHD_Result handle_request(void *context, struct MHD_Connection *connection,
				      const char *url, const char *method, const char *version,
				      const char *data, size_t *size, void **state)
{
	const struct pprof_store *store = context;
	struct request *request = *state;

	if (!request) {
		if (strcmp(method, "POST") != 0 ||
		    strcmp(url, store->otlp ? "/v1development/profiles" : "/ingest") != 0)
			return answer_with(connection, 404);
		*state = request = calloc(1, sizeof(*request));
		if (store->otlp)
			return MHD_YES;
		request->form = MHD_create_post_processor(connection, 4096, parse_part, request);
		return request->form ? MHD_YES : answer_with(connection, 400);
	}
	if (!*size)
		return finish(context, connection, request);
	if (store->otlp)
		return append(request, data, size);
	MHD_post_process(request->form, data, *size);
	*size = 0;
	return MHD_YES;
}

static struct MHD_Daemon *start(struct pprof_store *store)
{
	const struct sockaddr_in address = { .sin_family = AF_INET,
					     .sin_port = htons(store->port),
					     .sin_addr = { htonl(INADDR_LOOPBACK) } };

	const struct MHD_OptionItem secured[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, unconst(store->certificate) },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, unconst(store->key) },
		{ MHD_OPTION_END, 0, NULL },
	};
	const unsigned int flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO;

	return MHD_start_daemon(store->certificate ? flags | MHD_USE_TLS : flags, 0, NULL, NULL,
				handle_request, store, MHD_OPTION_SOCK_ADDR, &address,
				MHD_OPTION_NOTIFY_COMPLETED, end_request, NULL,
				MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_ARRAY,
				store->certificate ? secured : secured + 2, MHD_OPTION_END);
}

/* Without it there is nothing to check. */
static void end_without(const char *what)
{
	fprintf(stderr, "the store for profiles has no %s: %s\n", what, strerror(errno));
	abort();
}

/* The server may listen on it too: SO_REUSEPORT is for sockets of one user. */
static void choose_port(struct pprof_store *store)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof(address);
	const int yes = 1;

	store->port_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (setsockopt(store->port_fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
	    setsockopt(store->port_fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes)) ||
	    bind(store->port_fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    getsockname(store->port_fd, (struct sockaddr *)&address, &size))
		end_without("port");
	store->port = ntohs(address.sin_port);
}

void pprof_store_init(struct pprof_store *store)
{
	memset(store, 0, sizeof(*store));
	store->status = 200;
	pthread_mutex_init(&store->lock, NULL);
	choose_port(store);
}

void pprof_store_start(struct pprof_store *store)
{
	store->daemon = start(store);
	if (!store->daemon)
		end_without("server");
}

void pprof_store_stop(struct pprof_store *store)
{
	store->hold = false;
	if (store->daemon)
		MHD_stop_daemon(store->daemon);
	store->daemon = NULL;
}

void pprof_store_free(struct pprof_store *store)
{
	pprof_store_stop(store);
	for (unsigned int i = 0; i < store->count; i++)
		free(store->received[i].profile);
	pthread_mutex_destroy(&store->lock);
	close(store->port_fd);
}

void pprof_store_wait(struct pprof_store *store, unsigned int count)
{
	for (int i = 0; i < WAIT_MS && store->count < count; i++)
		usleep(1000);
	CHECK(store->count >= count);
}

const struct pprof_received *pprof_store_find(struct pprof_store *store, const char *needle)
{
	const struct pprof_received *found = NULL;

	pthread_mutex_lock(&store->lock);
	for (unsigned int i = 0; i < store->count && !found; i++)
		if (strstr(store->received[i].name, needle))
			found = &store->received[i];
	pthread_mutex_unlock(&store->lock);
	return found;
}
