// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pprof_store.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

#define WAIT_MS 60000

struct request {
	struct MHD_PostProcessor *form;
	char *profile;
	size_t size;
	bool whole; /* all that came was a part "profile" with a file */
};

static enum MHD_Result take_part(void *context, enum MHD_ValueKind kind, const char *key,
				 const char *filename, const char *type, const char *encoding,
				 const char *data, uint64_t offset, size_t size)
{
	struct request *request = context;

	request->whole = !strcmp(key, "profile") && filename && !strcmp(filename, "profile.pprof");
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

static void copy_argument(struct MHD_Connection *connection, const char *key, char *value, size_t size)
{
	const char *found = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, key);

	snprintf(value, size, "%s", found ? found : "");
}

static void keep(struct pprof_store *store, struct MHD_Connection *connection, struct request *request)
{
	struct pprof_received *to = &store->received[store->count];
	const char *tenant = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-Scope-OrgID");

	copy_argument(connection, "name", to->name, sizeof(to->name));
	copy_argument(connection, "from", to->from, sizeof(to->from));
	copy_argument(connection, "until", to->until, sizeof(to->until));
	copy_argument(connection, "sampleRate", to->rate, sizeof(to->rate));
	copy_argument(connection, "spyName", to->spy, sizeof(to->spy));
	snprintf(to->tenant, sizeof(to->tenant), "%s", tenant ? tenant : "");
	to->profile = request->profile;
	to->size = request->size;
	request->profile = NULL;
	store->count++;
}

/* As the real one: with format=pprof the body would be the profile itself. */
static bool is_good(struct MHD_Connection *connection, const struct request *request)
{
	const char *format = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "format");

	return !format && request->whole && request->size > 2 && !memcmp(request->profile, "\x1f\x8b", 2);
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
	if (!is_good(connection, request))
		status = 400;
	else if (store->refuses && strstr(name, store->refuses))
		status = 422;
	pthread_mutex_lock(&store->lock);
	if (status == 200 && store->count < PPROF_STORE_MAX)
		keep(store, connection, request);
	pthread_mutex_unlock(&store->lock);
	return answer_with(connection, status);
}

static enum MHD_Result take(void *context, struct MHD_Connection *connection, const char *url,
			    const char *method, const char *version, const char *data, size_t *size,
			    void **state)
{
	struct request *request = *state;

	if (!request) {
		if (strcmp(method, "POST") != 0 || strcmp(url, "/ingest") != 0)
			return answer_with(connection, 404);
		*state = request = calloc(1, sizeof(*request));
		request->form = MHD_create_post_processor(connection, 4096, take_part, request);
		return request->form ? MHD_YES : answer_with(connection, 400);
	}
	if (!*size)
		return finish(context, connection, request);
	MHD_post_process(request->form, data, *size);
	*size = 0;
	return MHD_YES;
}

static struct MHD_Daemon *start(struct pprof_store *store)
{
	const struct sockaddr_in address = { .sin_family = AF_INET,
					     .sin_port = htons(store->port),
					     .sin_addr = { htonl(INADDR_LOOPBACK) } };

	return MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, NULL, NULL, take, store,
				MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED, end_request,
				NULL, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_END);
}

void pprof_store_init(struct pprof_store *store)
{
	memset(store, 0, sizeof(*store));
	store->status = 200;
	pthread_mutex_init(&store->lock, NULL);
	pprof_store_start(store);
	store->port = MHD_get_daemon_info(store->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
	pprof_store_stop(store);
}

void pprof_store_start(struct pprof_store *store)
{
	store->daemon = start(store);
	if (!store->daemon) /* without it there is nothing that could be looked at */
		abort();
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
