/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one profile to a store: its parameters, and the store's certificate with TLS. openssl(1)
 * creates an authority that only the test trusts, and by it a certificate for localhost. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/pprof_store.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/daemon/push_request.h"
#include "vmm/report/pprof.h"

#define PEM_MAX 8192

static const struct push_item item = { 1763808960123, 1763808975456, 99, 3, 0, "a%2Fb" };
static const atomic_bool never;

struct fixture {
	char directory[64], authority[96], other_authority[96];
	char certificate[PEM_MAX], key[PEM_MAX];
	struct pprof_store store;
	char *profile;
	size_t profile_size;
};

static void run(const struct fixture *fixture, const char *command)
{
	char line[2048];

	snprintf(line, sizeof(line), "cd %s && { %s; } > log 2>&1 || { cat log; false; }",
		 fixture->directory, command);
	REQUIRE(!system(line)); /* NOLINT(cert-env33-c): a test's own words */
}

static void read_pem(const struct fixture *fixture, const char *name, char pem[PEM_MAX])
{
	char path[128];
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", fixture->directory, name);
	file = fopen(path, "re");
	REQUIRE(file != NULL);
	size = fread(pem, 1, PEM_MAX - 1, file);
	pem[size] = '\0';
	fclose(file);
}

#define NEW_KEY   "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
#define AUTHORITY "-addext basicConstraints=critical,CA:TRUE "

static void make_certificates(struct fixture *fixture)
{
	run(fixture, NEW_KEY AUTHORITY "-subj /CN=one -keyout one.key -out one.pem");
	run(fixture, NEW_KEY AUTHORITY "-subj /CN=other -keyout other.key -out other.pem");
	run(fixture,
	    "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost "
	    "-keyout store.key -out store.csr && echo subjectAltName=DNS:localhost > names && "
	    "openssl x509 -req -in store.csr -CA one.pem -CAkey one.key -CAcreateserial -days 2 "
	    "-extfile names -out store.pem");
	read_pem(fixture, "store.pem", fixture->certificate);
	read_pem(fixture, "store.key", fixture->key);
	snprintf(fixture->authority, sizeof(fixture->authority), "%s/one.pem", fixture->directory);
	snprintf(fixture->other_authority, sizeof(fixture->other_authority), "%s/other.pem",
		 fixture->directory);
}

/* The item's time. */
static void make_profile(struct fixture *fixture)
{
	const struct pprof_options options = { .for_store = true,
					       .from = item.from * 1000000,
					       .until = item.until * 1000000 };
	struct profile_options wanted = { .vcpu = -1 };
	struct small_recording recording;
	struct profile *profile;
	FILE *to = open_memstream(&fixture->profile, &fixture->profile_size);

	small_recording_make(&recording);
	wanted.input = recording.path;
	REQUIRE_EQUAL(profile_load(&profile, &wanted), 0);
	REQUIRE(to && !pprof_write(profile, &options, to));
	fclose(to);
	profile_free(profile);
	small_recording_free(&recording);
}

static void set_up(struct fixture *fixture)
{
	*fixture = (struct fixture){ .directory = "/tmp/kvmscope-push-request-XXXXXX" };
	REQUIRE(mkdtemp(fixture->directory) != NULL);
	pprof_store_init(&fixture->store);
	make_profile(fixture);
}

/* Restarts the store on the same port. */
static void start_with_tls(struct fixture *fixture)
{
	make_certificates(fixture);
	fixture->store.certificate = fixture->certificate;
	fixture->store.key = fixture->key;
	pprof_store_start(&fixture->store);
}

static void tear_down(struct fixture *fixture)
{
	char command[128];

	pprof_store_free(&fixture->store);
	free(fixture->profile);
	snprintf(command, sizeof(command), "rm -rf %s", fixture->directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
}

static int open_profile(const struct fixture *fixture)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/profile", fixture->directory);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK_EQUAL(write(fd, fixture->profile, fixture->profile_size), fixture->profile_size);
	CHECK_EQUAL(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

/* Sends to the store at ADDRESS, a scheme and a host; AUTHORITY is trusted. */
static enum push_outcome send_to(struct fixture *fixture, const char *address,
				 const char *authority, struct curl_slist *headers)
{
	struct push_request *request;
	enum push_outcome outcome = PUSH_FAILED;
	char url[96];
	int fd = open_profile(fixture);

	snprintf(url, sizeof(url), "%s:%u", address, fixture->store.port);
	if (!push_request_open(&request, url, PUSH_PYROSCOPE, authority, "h1.example", &never)) {
		outcome = push_request_send(request, &item, fd, fixture->profile_size, headers);
		push_request_close(request);
	}
	close(fd);
	return outcome;
}

static void check_message(const char *needle)
{
	if (!strstr(error_message(), needle))
		FAIL_TEST("\"%s\" does not say \"%s\"", error_message(), needle);
}

/* The fake store checks the rest. */
TEST(push_request, has_the_parameters_that_pyroscope_reads)
{
	static const char text[] =
		"Authorization: Basic MTIzNDU6Z2xjX3Rva2Vu\nX-Scope-OrgID: team-7\n";
	struct curl_slist *headers;
	const struct pprof_received *received;
	struct fixture fixture;

	set_up(&fixture);
	pprof_store_start(&fixture.store);
	REQUIRE_EQUAL(push_headers_parse(text, strlen(text), &headers), 0);
	CHECK_EQUAL(send_to(&fixture, "http://127.0.0.1", NULL, headers), PUSH_ACCEPTED);
	curl_slist_free_all(headers);
	received = pprof_store_find(&fixture.store, "");
	REQUIRE(received);
	CHECK_STRING(received->name, "kvmscope{host=h1.example,domain=a%2Fb,vcpu=3}");
	CHECK_STRING(received->from, "1763808960");
	CHECK_STRING(received->until, "1763808976");
	CHECK_STRING(received->rate, "99");
	CHECK_STRING(received->spy, "kvmscope");
	CHECK_STRING(received->authorization, "Basic MTIzNDU6Z2xjX3Rva2Vu");
	CHECK_STRING(received->tenant, "team-7");
	REQUIRE_EQUAL(received->size, fixture.profile_size);
	CHECK(!memcmp(received->profile, fixture.profile, fixture.profile_size));
	tear_down(&fixture);
}

/* A body of OTLP, or what the store answers to it. */
static enum push_outcome send_otlp(struct fixture *fixture, const char *path,
				   struct curl_slist *headers)
{
	struct push_request *request;
	enum push_outcome outcome = PUSH_FAILED;
	char url[96];
	int fd = open_profile(fixture);

	snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", fixture->store.port, path);
	if (!push_request_open(&request, url, PUSH_OTLP, NULL, "h1.example", &never)) {
		outcome = push_request_send(request, &item, fd, fixture->profile_size, headers);
		push_request_close(request);
	}
	close(fd);
	return outcome;
}

/* tests/unit/report/test_otlp.c decodes such a body. */
TEST(push_request, sends_otlp)
{
	static const char text[] = "Authorization: Bearer x\n";
	/* partial_success (1): rejected_profiles (1) 1, error_message (2) "no" */
	static const char rejects[] = "\x0a\x06\x08\x01\x12\x02no";
	const struct pprof_received *received;
	struct curl_slist *headers;
	struct fixture fixture;

	set_up(&fixture);
	fixture.store.otlp = true;
	pprof_store_start(&fixture.store);
	REQUIRE_EQUAL(push_headers_parse(text, strlen(text), &headers), 0);
	CHECK_EQUAL(send_otlp(&fixture, "", headers), PUSH_ACCEPTED);
	CHECK_EQUAL(send_otlp(&fixture, "/v1development/profiles/", headers), PUSH_ACCEPTED);
	curl_slist_free_all(headers);
	REQUIRE_EQUAL(fixture.store.count, 2);
	received = &fixture.store.received[0];
	CHECK_STRING(received->authorization, "Bearer x");
	CHECK(memmem(received->profile, received->size, "a/b", 3) != NULL); /* the domain */
	/* What is sent again has the same id. */
	REQUIRE_EQUAL(received[0].size, received[1].size);
	CHECK(!memcmp(received[0].profile, received[1].profile, received[0].size));

	fixture.store.answer = rejects;
	fixture.store.answer_size = sizeof(rejects) - 1;
	CHECK_EQUAL(send_otlp(&fixture, "", NULL), PUSH_REJECTED);
	check_message("the store rejected it: no");
	fixture.store.answer = NULL;
	fixture.store.status = 413;
	CHECK_EQUAL(send_otlp(&fixture, "", NULL), PUSH_REFUSED);
	check_message("the store answered 413: told by the test");
	fixture.store.status = 429;
	CHECK_EQUAL(send_otlp(&fixture, "", NULL), PUSH_FAILED);
	tear_down(&fixture);
}

#define TLS_REQUIRED()                                                                             \
	do {                                                                                       \
		if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)                          \
			SKIP("this libmicrohttpd speaks no TLS");                                  \
	} while (0)

TEST(push_request, a_store_is_trusted_only_by_its_authority)
{
	struct fixture fixture;

	TLS_REQUIRED();
	set_up(&fixture);
	start_with_tls(&fixture);
	CHECK_EQUAL(send_to(&fixture, "https://localhost", fixture.authority, NULL), PUSH_ACCEPTED);
	CHECK_EQUAL(fixture.store.count, 1);

	CHECK_EQUAL(send_to(&fixture, "https://localhost", fixture.other_authority, NULL),
		    PUSH_FAILED);
	check_message("the store's certificate is not trusted");
	check_message("ca-file of [push]");
	CHECK_EQUAL(send_to(&fixture, "https://localhost", NULL, NULL), PUSH_FAILED);
	check_message("the store's certificate is not trusted");
	/* The certificate is for another host. */
	CHECK_EQUAL(send_to(&fixture, "https://127.0.0.1", fixture.authority, NULL), PUSH_FAILED);
	check_message("the store's certificate is not trusted");
	check_message("127.0.0.1");
	/* No headers were sent, which may contain a password. */
	CHECK_EQUAL(fixture.store.requests, 1);
	tear_down(&fixture);
}

/* The store is restarted to force new connections. */
TEST(push_request, reads_the_ca_file_for_each_connection)
{
	struct push_request *request;
	struct fixture fixture;
	char url[96];
	int fd;

	TLS_REQUIRED();
	set_up(&fixture);
	start_with_tls(&fixture);
	snprintf(url, sizeof(url), "https://localhost:%u", fixture.store.port);
	REQUIRE_EQUAL(
		push_request_open(&request, url, PUSH_PYROSCOPE, fixture.authority, "h1", &never),
		0);
	fd = open_profile(&fixture);
	CHECK_EQUAL(push_request_send(request, &item, fd, fixture.profile_size, NULL),
		    PUSH_ACCEPTED);
	pprof_store_stop(&fixture.store);
	pprof_store_start(&fixture.store);
	run(&fixture, "cp other.pem one.pem");
	CHECK_EQUAL(lseek(fd, 0, SEEK_SET), 0);
	CHECK_EQUAL(push_request_send(request, &item, fd, fixture.profile_size, NULL), PUSH_FAILED);
	check_message("the store's certificate is not trusted");
	push_request_close(request);
	close(fd);
	tear_down(&fixture);
}

TEST(push_request, reports_errors_in_a_ca_file)
{
	struct push_request *request;
	struct fixture fixture;
	char path[128];

	TLS_REQUIRED();
	set_up(&fixture);
	start_with_tls(&fixture);
	CHECK_EQUAL(push_request_open(&request, "https://localhost", PUSH_PYROSCOPE, "/none/ca.pem",
				      "h1", &never),
		    -ENOENT);
	check_message("/none/ca.pem");
	snprintf(path, sizeof(path), "%s/names", fixture.directory);
	CHECK_EQUAL(send_to(&fixture, "https://localhost", path, NULL), PUSH_FAILED);
	check_message("no usable certificates");
	CHECK_EQUAL(fixture.store.requests, 0);
	tear_down(&fixture);
}
