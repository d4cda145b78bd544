/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's metrics, read through a plain socket. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/daemon/metrics.h"

static struct metrics *start_with(const char *listen, unsigned int patience_ms)
{
	const struct metrics_options options = { .listen = listen, .patience_ms = patience_ms };
	struct metrics *metrics = NULL;

	if (metrics_start(&metrics, &options)) {
		fprintf(stderr, "%s\n", error_message());
		abort();
	}
	return metrics;
}

static struct metrics *start(const char *listen)
{
	return start_with(listen, 0);
}

static int connect_to(const struct metrics *metrics)
{
	const struct sockaddr_in address = { .sin_family = AF_INET,
					     .sin_port = htons(metrics_port(metrics)),
					     .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK_EQUAL(connect(fd, (const void *)&address, sizeof(address)), 0);
	return fd;
}

/* Reads until the connection is closed. */
static char *ask(const struct metrics *metrics, const char *request)
{
	int fd = connect_to(metrics);
	char *answer = calloc(1, 1 << 20);
	size_t size = 0;
	ssize_t got;

	CHECK_EQUAL(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
	while ((got = recv(fd, answer + size, (1 << 20) - 1 - size, 0)) > 0)
		size += (size_t)got;
	close(fd);
	return answer;
}

static char *get(const struct metrics *metrics)
{
	char *answer =
		ask(metrics, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");

	CHECK_EQUAL(strncmp(answer, "HTTP/1.1 200 ", 13), 0);
	CHECK(strstr(answer, "Content-Type: text/plain; version=0.0.4"));
	return answer;
}

static void check_line(const struct metrics *metrics, const char *line, bool there)
{
	char *answer = get(metrics), whole[512];

	snprintf(whole, sizeof(whole), "\n%s\n", line);
	if (!!strstr(answer, whole) != there)
		FAIL_TEST("%s is %sin\n%s", line, there ? "not " : "", answer);
	free(answer);
}

TEST(metrics, are_exported_for_each_domain)
{
	const struct metrics_values values = { .guest = 10,
					       .host = 2,
					       .lost = 3,
					       .cost = 1500000001,
					       .stops = 4,
					       .stopped = 5,
					       .bytes = 6,
					       .running = 7000000000,
					       .waiting = 8,
					       .asleep = 9 };
	struct metrics *metrics = start("127.0.0.1:0");
	struct metrics_domain *web = metrics_add(metrics, "web-1");
	struct metrics_domain *hostile = metrics_add(metrics, "\"} 1\nkvmscope_up 1 {x=\"\\");

	metrics_session_start(metrics, web, "bpf");
	metrics_set(web, &values);
	check_line(metrics, "kvmscope_domain_sampled{domain=\"web-1\",backend=\"bpf\"} 1", true);
	check_line(metrics, "kvmscope_samples_total{domain=\"web-1\",where=\"guest\"} 10", true);
	check_line(metrics, "kvmscope_samples_total{domain=\"web-1\",where=\"host\"} 2", true);
	check_line(metrics, "kvmscope_lost_samples_total{domain=\"web-1\"} 3", true);
	check_line(metrics, "kvmscope_sampling_seconds_total{domain=\"web-1\"} 1.500000001", true);
	check_line(metrics, "kvmscope_stops_total{domain=\"web-1\"} 4", true);
	check_line(metrics, "kvmscope_stopped_seconds_total{domain=\"web-1\"} 0.000000005", true);
	check_line(metrics, "kvmscope_recorded_bytes_total{domain=\"web-1\"} 6", true);
	check_line(metrics,
		   "kvmscope_vcpu_seconds_total{domain=\"web-1\",state=\"running\"} 7.000000000",
		   true);
	check_line(metrics,
		   "kvmscope_vcpu_seconds_total{domain=\"web-1\",state=\"waiting\"} 0.000000008",
		   true);
	check_line(metrics,
		   "kvmscope_vcpu_seconds_total{domain=\"web-1\",state=\"asleep\"} 0.000000009",
		   true);
	check_line(metrics, "# TYPE kvmscope_samples_total counter", true);
	check_line(metrics, "kvmscope_build_info{version=\"" KVMSCOPE_VERSION "\"} 1", true);
	check_line(
		metrics,
		"kvmscope_stops_total{domain=\"%22%7D%201%0Akvmscope_up%201%20%7Bx%3D%22%5C\"} 0",
		true);
	metrics_remove(metrics, web);
	metrics_remove(metrics, hostile);
	metrics_stop(metrics);
}

TEST(metrics, never_go_backwards)
{
	struct metrics *metrics = start("127.0.0.1:0");
	struct metrics_domain *domain = metrics_add(metrics, "one");

	metrics_session_start(metrics, domain, "perf");
	metrics_set(domain, &(struct metrics_values){ .lost = 7 });
	metrics_set(domain, &(struct metrics_values){ .lost = 5 });
	check_line(metrics, "kvmscope_lost_samples_total{domain=\"one\"} 7", true);
	metrics_session_end(metrics, domain);
	check_line(metrics, "kvmscope_lost_samples_total{domain=\"one\"} 7", true);
	check_line(metrics, "kvmscope_domain_sampled{domain=\"one\",backend=\"perf\"} 1", false);
	metrics_session_start(metrics, domain, "bpf");
	metrics_set(domain, &(struct metrics_values){ .lost = 1 });
	check_line(metrics, "kvmscope_lost_samples_total{domain=\"one\"} 8", true);
	check_line(metrics, "kvmscope_domain_sampled{domain=\"one\",backend=\"bpf\"} 1", true);
	metrics_remove(metrics, domain);
	metrics_stop(metrics);
}

/* An alert compares domains that are requested with those that are sampled. */
TEST(metrics, have_each_domain_that_is_requested)
{
	static const char requested[] = "kvmscope_domain_requested{domain=\"one\"} 1";
	static const char sampled[] = "kvmscope_domain_sampled{domain=\"one\",backend=\"perf\"} 1";
	struct metrics *metrics = start("127.0.0.1:0");
	struct metrics_domain *domain = metrics_add(metrics, "one");

	check_line(metrics, requested, true);
	check_line(metrics, sampled, false);
	metrics_session_start(metrics, domain, "perf");
	check_line(metrics, requested, true);
	check_line(metrics, sampled, true);
	/* It has started again before its earlier profile has ended. */
	CHECK(metrics_add(metrics, "one") == domain);
	metrics_session_end(metrics, domain);
	metrics_remove(metrics, domain);
	check_line(metrics, requested, true);
	check_line(metrics, sampled, false);
	metrics_remove(metrics, domain);
	check_line(metrics, requested, false);
	check_line(metrics, "kvmscope_lost_samples_total{domain=\"one\"} 0", true);
	metrics_stop(metrics);
}

/* A user may define any number of domains. */
TEST(metrics, of_ended_domains_are_forgotten_if_there_are_too_many)
{
	struct metrics *metrics = start("127.0.0.1:0");
	struct metrics_domain *first = metrics_add(metrics, "first");
	char name[32];

	for (unsigned int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "domain-%u", i);
		metrics_remove(metrics, metrics_add(metrics, name));
	}
	check_line(metrics, "kvmscope_stops_total{domain=\"first\"} 0", true);
	check_line(metrics, "kvmscope_stops_total{domain=\"domain-975\"} 0", false);
	check_line(metrics, "kvmscope_stops_total{domain=\"domain-976\"} 0", true);
	check_line(metrics, "kvmscope_stops_total{domain=\"domain-1999\"} 0", true);
	metrics_remove(metrics, first);
	metrics_stop(metrics);
}

static void check_status(const struct metrics *metrics, const char *request, const char *status)
{
	char *answer = ask(metrics, request);

	if (strncmp(answer, status, strlen(status)) != 0)
		FAIL_TEST("the answer to %.20s is %.20s and not %s", request, answer, status);
	free(answer);
}

TEST(metrics, are_the_only_page)
{
	struct metrics *metrics = start("127.0.0.1:0");
	char *head;

	check_status(metrics, "GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 404");
	check_status(metrics, "GET /metrics/../etc/passwd HTTP/1.0\r\n\r\n", "HTTP/1.1 404");
	check_status(metrics, "POST /metrics HTTP/1.0\r\nContent-Length: 2\r\n\r\nxx",
		     "HTTP/1.1 405");
	check_status(metrics, "DELETE /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 405");
	check_status(metrics, "what?\r\n\r\n", "");
	head = ask(metrics, "HEAD /metrics HTTP/1.0\r\n\r\n");
	CHECK_EQUAL(strncmp(head, "HTTP/1.1 200", 12), 0);
	CHECK(!strstr(head, "kvmscope_build_info"));
	free(head);
	metrics_stop(metrics);
}

static unsigned int count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned int count = 0;

	while (directory && readdir(directory))
		count++;
	if (directory)
		closedir(directory);
	return count;
}

/* True if the server has closed the connection. */
static bool is_closed(int fd)
{
	char byte;

	return !recv(fd, &byte, 1, MSG_DONTWAIT);
}

/* Silent clients use a limited number of descriptors, and do not keep others out. */
TEST(metrics, are_served_to_a_new_client_in_place_of_the_oldest)
{
	struct metrics *metrics = start("127.0.0.1:0");
	unsigned int before = count_descriptors();
	int idle[40];

	for (unsigned int i = 0; i < 40; i++)
		idle[i] = connect_to(metrics);
	for (unsigned int i = 0; i < 20000 && !is_closed(idle[40 - 16 - 1]); i++)
		usleep(1000);
	usleep(50000); /* so that more could be closed */
	CHECK_EQUAL(count_descriptors(), before + 40 + 16);
	for (unsigned int i = 0; i < 40; i++)
		CHECK_EQUAL(is_closed(idle[i]), i < 40 - 16);
	check_line(metrics, "kvmscope_build_info{version=\"" KVMSCOPE_VERSION "\"} 1", true);
	CHECK(!is_closed(idle[39]));
	for (unsigned int i = 0; i < 40; i++)
		close(idle[i]);
	metrics_stop(metrics);
}

/* A byte now and then does not extend the time for a request. */
TEST(metrics, have_a_deadline_for_each_client)
{
	struct metrics *metrics = start_with("127.0.0.1:0", 500);
	int slow = connect_to(metrics);
	unsigned int sent = 0;

	while (sent < 1000 && send(slow, "G", 1, MSG_NOSIGNAL) == 1 && !is_closed(slow)) {
		usleep(20000);
		sent++;
	}
	CHECK(sent > 1 && sent < 1000);
	close(slow);
	metrics_stop(metrics);
}

TEST(metrics, can_be_for_root_only)
{
	const struct sockaddr_un address = { AF_UNIX, "build/metrics-test.sock" };
	static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
	char where[PATH_MAX], answer[16] = "";
	struct metrics *metrics;
	struct stat status;

	REQUIRE(getcwd(where, sizeof(where) - 64));
	strcat(strcat(where, "/"), address.sun_path);
	if (strlen(where) >= sizeof(address.sun_path))
		SKIP("the path of the working directory is too long for a socket");
	for (unsigned int i = 0; i < 2; i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		metrics = start(where); /* replaces the socket of the first one */
		CHECK(!stat(where, &status) && status.st_mode == (S_IFSOCK | 0600));
		CHECK_EQUAL(connect(fd, (const void *)&address, sizeof(address)), 0);
		CHECK_EQUAL(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
		CHECK_EQUAL(recv(fd, answer, 12, MSG_WAITALL), 12);
		CHECK_STRING(answer, "HTTP/1.1 200");
		CHECK_EQUAL(metrics_port(metrics), 0);
		metrics_stop(metrics);
		close(fd);
	}
	unlink(where);
}

static void check_listen(const char *listen, int error)
{
	const struct metrics_options options = { .listen = listen };
	struct metrics *metrics = NULL;

	CHECK_EQUAL(metrics_start(&metrics, &options), error);
	metrics_stop(metrics);
}

TEST(metrics, report_where_they_cannot_listen)
{
	struct metrics *metrics = start("127.0.0.1:0");
	char taken[32];

	check_listen("127.0.0.1", -EINVAL);
	check_listen(":9754", -EINVAL);
	check_listen("127.0.0.1:http!", -EINVAL);
	check_listen("127.0.0.1:99999", -EINVAL);
	check_listen("", -EINVAL);
	check_listen("/dev/null", -EADDRINUSE); /* not a socket: it stays */
	check_listen("/proc/nonexistent/socket", -ENOENT);
	snprintf(taken, sizeof(taken), "127.0.0.1:%u", metrics_port(metrics));
	check_listen(taken, -EADDRINUSE);
	CHECK(strstr(error_message(), taken));
	metrics_stop(metrics);
	metrics = start(NULL);
	CHECK_EQUAL(metrics_port(metrics), 0);
	metrics_stop(metrics);
}
