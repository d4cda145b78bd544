/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/ctl_domains.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/recording_disks.h"
#include "vmm/cli/screen.h"
#include "vmm/control/control_client.h"
#include "vmm/daemon/daemon.h"
#include "vmm/perf_data/recording_name.h"

#define MIB              (1024.0 * 1024.0)
#define POLL_INTERVAL_US 20000

/* ms that kvmscoped has to detect a domain whose profile was only just requested */
#define KNOWN_MS 3000
/* ms until there are samples: a guest's kernel is searched for 20 s. An idle guest has none. */
#define SAMPLES_MS 30000
/* ms after which the wait is explained to the user */
#define PATIENCE_MS 1000

bool ctl_is_daemon(const json_t *status)
{
	return json_is_true(json_object_get(status, "daemon"));
}

void ctl_print_cost(const json_t *answer)
{
	double samples = answer_number(answer, "samples"), cost = answer_number(answer, "cost_ns"),
	       sampled = answer_number(answer, "sampled_ns");

	if (samples > 0 && sampled > 0)
		printf("\ncost:     %.1f us for each sample, %.2f %% of the sampled time",
		       cost / samples / 1e3, 100 * cost / sampled);
}

void ctl_print_guest(const json_t *answer)
{
	if (!*answer_text(answer, "guest_release"))
		return;
	printf("\nguest:    Linux ");
	screen_print(answer_text(answer, "guest_release"));
}

static void print_row(const json_t *domain)
{
	printf("%7.0f  ", answer_number(domain, "pid"));
	screen_print(answer_text(domain, "domain"));
	printf("  %s", answer_text(domain, "state"));
	if (*answer_text(domain, "backend"))
		printf(" by %s at %.0f Hz", answer_text(domain, "backend"),
		       answer_number(domain, "frequency"));
	printf(", %.0f samples", answer_number(domain, "samples"));
	if (*answer_text(domain, "guest_release")) {
		printf(", Linux ");
		screen_print(answer_text(domain, "guest_release"));
	}
	putchar('\n');
}

int ctl_list_domains(const struct control_run *daemon, json_t *all, bool json)
{
	json_t *result, *domain;
	size_t i;
	int error = control_call(daemon->fd, "domains", NULL, &result);

	if (error)
		return error;
	if (!json)
		printf("\nDomains of kvmscoped, process %d:\n", daemon->pid);
	json_array_foreach(json_object_get(result, "domains"), i, domain)
	{
		if (json)
			json_array_append(all, domain);
		else
			print_row(domain);
	}
	if (!json && !i)
		printf("none is profiled\n");
	json_decref(result);
	return 0;
}

static int connect_daemon(const char *socket)
{
	int daemon = socket ? control_connect(socket) : control_runs_connect(0, DAEMON_NAME);

	if (socket || daemon != -ENOENT)
		return daemon;
	return error_set(
		-ENOENT,
		"kvmscoped, which profiles domains, is not running%s: systemctl start kvmscoped",
		geteuid() ? ", or does not accept this user" : "");
}

/* The state of the guest agent of a domain that has a channel for one. */
static void print_agent(const char *agent)
{
	static const struct {
		const char *word, *means;
	} states[] = {
		{ "open", ": it provides symbols of user-space images" },
		{ "silent",
		  ": it does not answer; is kvmscope-agent installed in the guest, and running?" },
		{ "busy", ": another program is connected to its channel" },
		{ "unreachable", ": its channel cannot be connected to" },
	};

	if (*agent)
		printf("\nagent:    ");
	screen_print(agent);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (!strcmp(agent, states[i].word))
			printf("%s", states[i].means);
}

static void print_status(const json_t *domain)
{
	printf("domain:   ");
	screen_print(answer_text(domain, "domain"));
	printf(", process %.0f, %.0f vCPU%s\nprofile:  %s", answer_number(domain, "pid"),
	       answer_number(domain, "vcpus"), answer_number(domain, "vcpus") == 1 ? "" : "s",
	       answer_text(domain, "state"));
	if (*answer_text(domain, "backend"))
		printf(" by %s at %.0f Hz", answer_text(domain, "backend"),
		       answer_number(domain, "frequency"));
	if (*answer_text(domain, "message")) {
		printf(": ");
		screen_print(answer_text(domain, "message"));
	}
	printf("\nsamples:  %.0f, %.0f of them outside of the guest, %.0f lost; %.1f MiB",
	       answer_number(domain, "samples"), answer_number(domain, "host_samples"),
	       answer_number(domain, "lost"), answer_number(domain, "bytes") / MIB);
	if (answer_number(domain, "cost_ns") > 0)
		ctl_print_cost(domain);
	if (json_is_integer(json_object_get(domain, "flight_files")))
		printf("\nflight:   %.0f recordings", answer_number(domain, "flight_files"));
	ctl_print_guest(domain);
	print_agent(answer_text(domain, "agent"));
	if (*answer_text(domain, "file")) {
		printf("\nfile:     ");
		screen_print(answer_text(domain, "file"));
	}
	putchar('\n');
}

static int request_status(int daemon, const char *domain, json_t **status)
{
	json_t *request = json_pack("{s:s}", "domain", domain);
	int error = control_call(daemon, "domain-status", request, status);

	json_decref(request);
	return error;
}

int ctl_domain_status(const char *socket, const char *domain, bool json)
{
	json_t *result = NULL;
	int daemon = connect_daemon(socket);
	int error = daemon < 0 ? daemon : request_status(daemon, domain, &result);

	if (daemon >= 0)
		close(daemon);
	if (!error && json)
		screen_print_json(result);
	else if (!error)
		print_status(result);
	json_decref(result);
	return error;
}

/* Replaces ANSWER, that of domain-dump, by the one with complete set. */
static int wait_for_file(int daemon, const char *domain, json_t **answer)
{
	json_t *request = json_pack("{s:s, s:O}", "domain", domain, "number",
				    json_object_get(*answer, "number"));
	int error = 0;

	while (!error && !json_is_true(json_object_get(*answer, "complete"))) {
		json_decref(*answer);
		*answer = NULL;
		usleep(POLL_INTERVAL_US);
		error = control_call(daemon, "domain-dump-result", request, answer);
	}
	json_decref(request);
	return error;
}

/* The search fails silently for a domain that has ended or whose process may not be read. */
static void search_symbols(int daemon, const char *domain, const char *file)
{
	json_t *status = NULL;

	if (!request_status(daemon, domain, &status))
		recording_disks_search_domain(file, (pid_t)answer_number(status, "pid"), NULL);
	json_decref(status);
}

/* The file may have been completed, and thus renamed, during the search for symbols. */
static void update_file_name(json_t *answer)
{
	char found[PATH_MAX];
	struct stat status;

	if (!recording_name_find(answer_text(answer, "file"), found, &status))
		json_object_set_new(answer, "file", json_string(found));
}

/* -EAGAIN: not yet. A flight recorder writes all samples that it has; a recording has only those
 * that were flushed. */
static int has_samples(int daemon, const char *domain)
{
	json_t *status = NULL;
	int error = request_status(daemon, domain, &status);
	bool flight = !error && json_is_integer(json_object_get(status, "flight_files"));

	if (!error && !(answer_number(status, flight ? "samples" : "readable_samples") > 0))
		error = -EAGAIN;
	json_decref(status);
	return error;
}

/* So that a user can ask for a dump right after requesting the domain's profile. */
static int wait_for_samples(int daemon, const char *domain)
{
	for (unsigned int waited = 0;; waited += POLL_INTERVAL_US / 1000) {
		int error = has_samples(daemon, domain);

		if (error == -EAGAIN && waited >= SAMPLES_MS)
			return 0; /* the dump reports whether there is a file */
		if (error != -EAGAIN && (error != -ENODATA || waited >= KNOWN_MS))
			return error;
		if (waited == PATIENCE_MS)
			log_info("waiting for the first samples of %s", domain);
		usleep(POLL_INTERVAL_US);
	}
}

int ctl_domain_dump(const char *socket, const char *domain, bool json, bool disk_symbols)
{
	json_t *request = json_pack("{s:s}", "domain", domain), *answer = NULL;
	int daemon = connect_daemon(socket);
	int error = daemon < 0 ? daemon : wait_for_samples(daemon, domain);

	if (!error)
		error = control_call(daemon, "domain-dump", request, &answer);
	if (!error)
		error = wait_for_file(daemon, domain, &answer);
	if (!error && disk_symbols)
		search_symbols(daemon, domain, answer_text(answer, "file"));
	if (daemon >= 0)
		close(daemon);
	if (!error)
		update_file_name(answer);
	if (!error && json)
		screen_print_json(answer);
	else if (!error)
		printf("%s\n", answer_text(answer, "file"));
	json_decref(request);
	json_decref(answer);
	return error;
}

static int search_latest(int daemon, const char *domain)
{
	json_t *status = NULL;
	int error = request_status(daemon, domain, &status);
	char whose[512];

	snprintf(whose, sizeof(whose), "%s: ", answer_text(status, "domain"));
	if (!error && *answer_text(status, "file"))
		recording_disks_search_domain(answer_text(status, "file"),
					      (pid_t)answer_number(status, "pid"), whose);
	json_decref(status);
	return error;
}

/* A domain that has ended meanwhile is not an error. */
static int search_all(int daemon)
{
	json_t *all = NULL, *domain;
	size_t i;
	int error = control_call(daemon, "domains", NULL, &all);

	json_array_foreach(json_object_get(all, "domains"), i, domain)
	{
		if (search_latest(daemon, answer_text(domain, "domain")))
			log_debug("%s", error_message());
	}
	json_decref(all);
	return error;
}

int ctl_domain_search(const char *socket, const char *domain)
{
	int daemon = connect_daemon(socket);
	int error = daemon;

	if (daemon >= 0)
		error = domain ? search_latest(daemon, domain) : search_all(daemon);
	if (daemon >= 0)
		close(daemon);
	return error;
}
