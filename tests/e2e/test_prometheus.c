/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debian's Prometheus reads the daemon's metrics, and the rules and the dashboard of
 * docs/prometheus use them. It is not installed, because the package starts a server.
 */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/daemon/metrics.h"

#define DOCS         "docs/prometheus"
#define DASHBOARD    DOCS "/grafana-kvmscope.json"
#define PROGRAMS     "build/cache/prometheus/files/usr/bin"
#define WAIT_SECONDS 60

/* Fetches it. Returns false without it, for example without a mirror. */
static bool prometheus_is_there(void)
{
	return command_succeeds("tests/rig/fetch-packages prometheus prometheus");
}

/* The daemon's part: two domains, one of them sampled; recordings; a store that is down. */
struct exporter {
	char directory[64], recordings_path[80], spool[80];
	struct recordings *recordings;
	struct push *push;
	struct metrics *metrics;
	struct metrics_domain *web, *busy;
};

static void check_started(int error)
{
	if (!error)
		return;
	fprintf(stderr, "%s\n", error_message());
	abort();
}

static void exporter_start(struct exporter *exporter)
{
	struct recordings_options recordings = { .directory = exporter->recordings_path,
						 .rotate = 60,
						 .hand_on = true };
	struct push_options push = { .url = "http://127.0.0.1:1",
				     .spool = exporter->spool,
				     .spool_size = 1 << 20,
				     .host = "host" };
	struct metrics_options metrics = { .listen = "127.0.0.1:0" };

	*exporter = (struct exporter){ .directory = "build/prometheus-test.XXXXXX" };
	if (!mkdtemp(exporter->directory))
		abort();
	snprintf(exporter->recordings_path, sizeof(exporter->recordings_path), "%s/recordings",
		 exporter->directory);
	snprintf(exporter->spool, sizeof(exporter->spool), "%s/spool", exporter->directory);
	check_started(recordings_open(&exporter->recordings, &recordings));
	push.recordings = metrics.recordings = exporter->recordings;
	check_started(push_start(&exporter->push, &push));
	metrics.push = exporter->push;
	check_started(metrics_start(&exporter->metrics, &metrics));
	exporter->web = metrics_add(exporter->metrics, "web-1");
	exporter->busy = metrics_add(exporter->metrics, "busy");
	metrics_session_start(exporter->metrics, exporter->web, "bpf");
	metrics_set(exporter->web, &(struct metrics_values){ .guest = 10, .host = 2, .lost = 3 });
}

static void exporter_stop(struct exporter *exporter)
{
	metrics_remove(exporter->metrics, exporter->web);
	metrics_remove(exporter->metrics, exporter->busy);
	metrics_stop(exporter->metrics);
	push_stop(exporter->push);
	recordings_close(exporter->recordings);
	free(command_output(NULL, "rm -rf %s", exporter->directory));
}

/* Rules and names */

TEST(prometheus, rules_pass_promtool)
{
	char *output;
	int status;

	if (!prometheus_is_there())
		SKIP("Debian's prometheus cannot be fetched");
	output = command_output(
		&status, "exec 2>&1; d=$(mktemp -d build/prometheus-rules.XXXXXX) && "
			 "cp " DOCS "/*.yml tests/e2e/prometheus-rules-test.yml $d && " PROGRAMS
			 "/promtool check config $d/prometheus.yml && " PROGRAMS
			 "/promtool check rules --lint-fatal $d/kvmscope.rules.yml && " PROGRAMS
			 "/promtool test rules $d/prometheus-rules-test.yml; s=$?; "
			 "rm -rf $d; exit $s");
	if (status)
		FAIL_TEST("promtool: %s", output);
	free(output);
}

/* Every alert has a test. */
TEST(prometheus, alerts_are_tested)
{
	char *missing = command_output(
		NULL,
		"sed -n 's/^ *- alert: //p' " DOCS "/kvmscope.rules.yml | while read -r a; do "
		"grep -q \"^ *- alertname: $a$\" tests/e2e/prometheus-rules-test.yml || "
		"echo \"$a\"; done");

	CHECK_STRING(missing, "");
	free(missing);
}

#define TYPES                                                                                      \
	"python3 -c 'import sys, urllib.request as u; "                                            \
	"print(u.urlopen(sys.argv[1]).read().decode())' http://127.0.0.1:%u/metrics | "            \
	"sed -n 's/^# TYPE \\([^ ]*\\) .*/\\1/p'"

/* The rules and the dashboard use what the daemon or a rule provides; the page lists all of it. */
TEST(prometheus, series_of_rules_and_dashboard_are_exported)
{
	FIXTURE(struct exporter, exporter, exporter_start, exporter_stop);
	unsigned int port = metrics_port(exporter.metrics);
	char *missing = command_output(
		NULL,
		"p=%s/provided; { " TYPES "; sed -n 's/^ *- record: //p' " DOCS
		"/kvmscope.rules.yml; } > $p; grep -ohE '[a-z_:]*(kvmscope|process)_[a-z0-9_:]+' " DOCS
		"/kvmscope.rules.yml " DASHBOARD " | sort -u | grep -vxFf $p",
		exporter.directory, port);
	char *unlisted = command_output(NULL,
					TYPES " | while read -r m; do grep -q \"^| .$m. |\" "
					      "docs/continuous-profiling.md || echo \"$m\"; done",
					port);

	CHECK_STRING(missing, "");
	CHECK_STRING(unlisted, "");
	free(missing);
	free(unlisted);
	missing = command_output(NULL, "wc -l < %s/provided", exporter.directory);
	CHECK(atoi(missing) > 20);
	free(missing);
}

/* The server */

struct prometheus {
	char directory[64];
	int port;
	pid_t pid;
};

/* The configuration of docs/prometheus, with this port and a short interval. */
static void configure(const struct prometheus *prometheus, unsigned int port)
{
	int status;

	free(command_output(
		&status,
		"cp " DOCS "/kvmscope.rules.yml %s && { echo 'global: "
		"{evaluation_interval: 200ms}' && sed -e 's/127.0.0.1:9754/127.0.0.1:%u/' "
		"-e 's/scrape_interval: 15s/scrape_interval: 200ms/' " DOCS
		"/prometheus.yml; } > %s/prometheus.yml",
		prometheus->directory, port, prometheus->directory));
	CHECK_EQUAL(status, 0);
}

/* It chooses a port, which its log has. Returns 0 after a time limit. */
static int listening_port(const struct prometheus *prometheus)
{
	int port = 0;

	for (unsigned int i = 0; i < WAIT_SECONDS * 10 && !port; i++) {
		char *text = command_output(
			NULL, "sed -n '/Listening on/s/.*127.0.0.1://p' %s/log 2>/dev/null",
			prometheus->directory);

		port = atoi(text);
		free(text);
		usleep(100000);
	}
	return port;
}

/* It ends with the test program, which has a time limit. */
static void run_program(const struct prometheus *prometheus)
{
	int fd, null = open("/dev/null", O_RDWR);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (chdir(prometheus->directory))
		_exit(127);
	fd = open("log", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	dup2(null, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	execl("../../" PROGRAMS "/prometheus", "prometheus", "--config.file=prometheus.yml",
	      "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0", NULL);
	_exit(127);
}

static void prometheus_start(struct prometheus *prometheus, const struct exporter *exporter)
{
	snprintf(prometheus->directory, sizeof(prometheus->directory), "%s", exporter->directory);
	configure(prometheus, metrics_port(exporter->metrics));
	prometheus->pid = fork();
	if (!prometheus->pid)
		run_program(prometheus);
	prometheus->port = listening_port(prometheus);
}

static void prometheus_stop(struct prometheus *prometheus)
{
	kill(prometheus->pid, SIGKILL);
	waitpid(prometheus->pid, NULL, 0);
}

/* The result of an instant query, by its HTTP API; NULL: it refuses the query. */
static json_t *query(const struct prometheus *prometheus, const char *expression)
{
	char *text;
	json_t *result;
	int status;

	setenv("EXPRESSION", expression, true);
	text = command_output(&status,
			      PROGRAMS "/promtool query instant --format json "
				       "http://127.0.0.1:%d \"$EXPRESSION\" 2>&1",
			      prometheus->port);
	result = status ? NULL : json_loads(text, JSON_DECODE_ANY, NULL);
	if (!result)
		FAIL_TEST("%s: %s", expression, text);
	free(text);
	return result;
}

/* The value of its only series; -1: there is none yet. */
static double query_value(const struct prometheus *prometheus, const char *expression)
{
	json_t *result = query(prometheus, expression);
	const json_t *sample = json_array_get(result, 0);
	const char *value = json_string_value(json_array_get(json_object_get(sample, "value"), 1));
	double number = value && json_array_size(result) == 1 ? strtod(value, NULL) : -1;

	json_decref(result);
	return number;
}

/* Counts of a domain that loses 2 % of its samples. */
static void count_more(const struct exporter *exporter, uint64_t round)
{
	metrics_set(exporter->busy, &(struct metrics_values){ .guest = 88 * round,
							      .host = 10 * round,
							      .lost = 2 * round,
							      .bytes = round });
}

static bool await_value(const struct prometheus *prometheus, const struct exporter *exporter,
			const char *expression, double least, double most)
{
	static uint64_t round;
	double value = -1;

	for (unsigned int i = 0; i < WAIT_SECONDS * 5; i++) {
		count_more(exporter, ++round);
		value = query_value(prometheus, expression);
		if (value >= least && value <= most)
			return true;
		usleep(200000);
	}
	FAIL_TEST("%s is %f", expression, value);
	return false;
}

static void replace_all(char *text, size_t size, const char *from, const char *to)
{
	char *at;

	while ((at = strstr(text, from))) {
		char rest[1024];

		snprintf(rest, sizeof(rest), "%s", at + strlen(from));
		snprintf(at, size - (size_t)(at - text), "%s%s", to, rest);
	}
}

/* Each expression of the panel shows something, with the variables that Grafana replaces. */
static void check_panel(const struct prometheus *prometheus, const struct exporter *exporter,
			const json_t *panel)
{
	const json_t *targets = json_object_get(panel, "targets"), *target;
	size_t i;

	json_array_foreach(targets, i, target)
	{
		char text[1024], count[1100];

		snprintf(text, sizeof(text), "%s",
			 json_string_value(json_object_get(target, "expr")));
		replace_all(text, sizeof(text), "$instance", ".*");
		replace_all(text, sizeof(text), "$domain", ".*");
		replace_all(text, sizeof(text), "$__rate_interval", "5m");
		CHECK(!strchr(text, '$'));
		snprintf(count, sizeof(count), "count(%s)", text);
		await_value(prometheus, exporter, count, 1, 100);
	}
}

static void check_dashboard(const struct prometheus *prometheus, const struct exporter *exporter)
{
	json_t *dashboard = json_load_file(DASHBOARD, JSON_REJECT_DUPLICATES, NULL), *panel;
	size_t i, panels = 0;

	json_array_foreach(json_object_get(dashboard, "panels"), i, panel)
	{
		check_panel(prometheus, exporter, panel);
		panels += json_array_size(json_object_get(panel, "targets")) > 0;
	}
	CHECK(panels > 10);
	json_decref(dashboard);
}

TEST(prometheus, scrapes_the_daemon)
{
	if (!prometheus_is_there())
		SKIP("Debian's prometheus cannot be fetched");
	FIXTURE(struct exporter, exporter, exporter_start, exporter_stop);
	FIXTURE(struct prometheus, server, prometheus_start, prometheus_stop, &exporter);

	REQUIRE(server.port);
	REQUIRE(await_value(&server, &exporter, "up{job=\"kvmscope\"}", 1, 1));
	CHECK_EQUAL(
		query_value(&server, "kvmscope_samples_total{domain=\"web-1\",where=\"guest\"}"),
		10);
	CHECK_EQUAL(query_value(&server,
				"sum without (where) (kvmscope_samples_total{domain=\"web-1\"})"),
		    12);
	CHECK_EQUAL(query_value(&server, "kvmscope_lost_samples_total{domain=\"web-1\"}"), 3);
	CHECK_EQUAL(query_value(&server, "kvmscope_domain_sampled{backend=\"bpf\"}"), 1);
	await_value(&server, &exporter, "domain:kvmscope_lost_samples:ratio_rate5m", 0.0199,
		    0.0201);
	await_value(&server, &exporter,
		    "ALERTS{alertname=\"KvmscopeLosesSamples\",domain=\"busy\"}", 1, 1);
	CHECK_EQUAL(query_value(&server,
				"ALERTS{alertname=\"KvmscopeDomainNotSampled\",domain=\"busy\"}"),
		    1);
	CHECK_EQUAL(query_value(&server, "count(ALERTS{alertname=\"KvmscopeDomainNotSampled\"})"),
		    1);
	check_dashboard(&server, &exporter);
}
