/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends one profile to a store: POST URL/ingest, as in Grafana Pyroscope (docs/sources/configure-
 * server/about-server-api.md and pkg/ingester/pyroscope/ingest_handler.go of
 * github.com/grafana/pyroscope). The query has name=kvmscope{host=H,domain=D,vcpu=N}, from and
 * until in seconds, spyName and sampleRate; the body is a form with the gzipped pprof in its part
 * "profile". There is no format=pprof: with it the server takes the whole body for the pprof, and
 * its own clients send the same.
 *
 * Or POST URL/v1development/profiles, as OpenTelemetry's protocol says (docs/specification.md of
 * github.com/open-telemetry/opentelemetry-proto): the body is an ExportProfilesServiceRequest
 * (vmm/report/otlp.h). One thread.
 */
#ifndef KVMSCOPE_DAEMON_PUSH_REQUEST_H
#define KVMSCOPE_DAEMON_PUSH_REQUEST_H

#include <curl/curl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/daemon/push_spool.h"

struct push_request;

enum push_outcome {
	PUSH_ACCEPTED, /* 2xx: the store has it */
	PUSH_REFUSED,  /* 400, 413, 415, 422: the store does not accept this one; it may accept
			  others */
	PUSH_REJECTED, /* OTLP: 200, but the store did not take it and must not get it again */
	PUSH_FAILED,   /* no answer, or one that affects all profiles; see the message */
};

/*
 * Prepares requests to URL in FORMAT with the label HOST, which end as soon as STOP is set.
 * "/ingest" or "/v1development/profiles" is appended to URL if it is missing. A store of https must
 * present a certificate for URL's host by an authority in the PEM file CA_FILE (NULL: one that the
 * system trusts), which is read for each connection. -EINVAL: URL is not http or https, or contains
 * a user or password, which belong into a header; the errors of opening CA_FILE. Strings are
 * copied, STOP must outlive the request.
 */
int push_request_open(struct push_request **request, const char *url, enum push_format format,
		      const char *ca_file, const char *host, const atomic_bool *stop);
/* NULL is a no-op. */
void push_request_close(struct push_request *request);

/* Sends the profile of SIZE bytes in FD with HEADERS (NULL: none). Waits for the answer, up to
 * half a minute. */
enum push_outcome push_request_send(struct push_request *request, const struct push_item *item,
				    int fd, uint64_t size, struct curl_slist *headers);

/* Headers that the user adds to each request, such as for authorization. Any thread. */
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
