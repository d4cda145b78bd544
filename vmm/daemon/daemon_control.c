/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/control/control_server.h"
#include "vmm/control/run_directory.h"
#include "vmm/daemon/daemon.h"
#include "vmm/daemon/domain_set.h"
#include "vmm/daemon/hook_inbox.h"

struct daemon_control {
	struct control *control;
	struct control_socket socket;
	struct domains *domains;
	const struct hook_inbox *inbox;
	time_t started;
};

static void set_count(json_t *object, const char *name, uint64_t count)
{
	json_object_set_new(object, name, json_integer((json_int_t)count));
}

static void set_text(json_t *object, const char *name, const char *text)
{
	json_object_set_new(object, name, *text ? json_string(text) : json_null());
}

/* The printable name is also accepted in commands. */
static void describe(struct domain_profile *domain, json_t *to)
{
	static const char *const states[] = { [DOMAIN_ATTACHING] = "attaching",
					      [DOMAIN_SAMPLING] = "sampling",
					      [DOMAIN_WAITING] = "waiting",
					      [DOMAIN_ENDED] = "ended" };
	const struct domain_profile_info *info = domain_profile_info(domain);
	struct domain_profile_status status;

	domain_profile_status(domain, &status);
	set_text(to, "domain", info->shown);
	set_count(to, "pid", (uint64_t)info->pid);
	set_text(to, "state", states[status.state]);
	set_text(to, "message", status.message);
	set_text(to, "backend", status.backend ? status.backend : "");
	set_count(to, "vcpus", status.vcpus);
	set_count(to, "frequency", info->settings.frequency);
	json_object_set_new(to, "flight_files",
			    info->settings.flight ? json_integer(status.flight_files)
						  : json_null());
	set_count(to, "samples", status.statistics.samples);
	set_count(to, "readable_samples", status.statistics.readable);
	set_count(to, "host_samples", status.statistics.host);
	set_count(to, "lost", status.statistics.lost);
	set_count(to, "bytes", status.statistics.bytes);
	set_count(to, "sampled_ns", status.statistics.weight);
	set_count(to, "cost_ns", status.statistics.cost);
	set_text(to, "agent", status.agent ? status.agent : "");
	set_text(to, "guest_release", status.statistics.release);
}

static void add_domain(void *context, struct domain_profile *domain)
{
	json_t *described = json_object();

	describe(domain, described);
	json_array_append_new(context, described);
}

static int do_domains(void *context, json_t *arguments, json_t *result)
{
	struct daemon_control *self = context;
	int error = control_no_arguments(arguments);
	json_t *list;

	if (error)
		return error;
	list = json_array();
	domains_each(self->domains, add_domain, list);
	json_object_set_new(result, "domains", list);
	return 0;
}

static int do_status(void *context, json_t *arguments, json_t *result)
{
	const struct daemon_control *self = context;
	int error = control_no_arguments(arguments);

	if (error)
		return error;
	set_count(result, "pid", (uint64_t)getpid());
	set_text(result, "name", DAEMON_NAME);
	set_text(result, "kvmscope", KVMSCOPE_VERSION);
	set_count(result, "seconds", (uint64_t)(time(NULL) - self->started));
	json_object_set_new(result, "daemon", json_true());
	set_count(result, "hook_dropped", hook_inbox_dropped(self->inbox));
	return 0;
}

static int describe_one(void *context, struct domain_profile *domain)
{
	char path[PATH_MAX];

	describe(domain, context);
	set_text(context, "file", domain_profile_latest_file(domain, path) ? "" : path);
	return 0;
}

static int do_domain_status(void *context, json_t *arguments, json_t *result)
{
	struct daemon_control *self = context;
	const char *name;

	if (json_unpack_ex(arguments, NULL, 0, "{s:s !}", "domain", &name))
		return error_set(-EINVAL,
				 "domain-status takes \"domain\", a string, and nothing else");
	return domains_find(self->domains, name, describe_one, result);
}

/* The arguments of a dump. */
struct dump {
	const char *path;
	uint64_t after; /* ns */
	json_int_t number;
	json_t *result;
};

static int read_dump(json_t *arguments, const char **name, struct dump *dump)
{
	double seconds = -1;

	if (json_unpack_ex(arguments, NULL, 0, "{s:s, s?s, s?F !}", "domain", name, "file",
			   &dump->path, "after", &seconds))
		return error_set(
			-EINVAL,
			"domain-dump takes \"domain\", \"file\" and \"after\", and nothing else");
	if (dump->path && *dump->path != '/')
		return error_set(-EINVAL, "domain-dump: \"file\" must be an absolute path");
	if (seconds > 1e6)
		return error_set(-EINVAL, "domain-dump: \"after\" must be a number of seconds");
	dump->after = seconds >= 0 ? (uint64_t)(seconds * 1e9) : UINT64_MAX;
	return 0;
}

/* Without a flight recorder there is nothing to wait for: the file is readable. */
static int dump_recording(struct domain_profile *domain, const struct dump *dump)
{
	char path[PATH_MAX];
	int error;

	if (dump->path || dump->after != UINT64_MAX)
		return error_set(
			-ENOTSUP,
			"domain %s has no flight recorder: everything is recorded, without a choice of "
			"file or time",
			domain_profile_info(domain)->shown);
	error = domain_profile_latest_file(domain, path);
	if (error)
		return error;
	set_count(dump->result, "number", 0);
	json_object_set_new(dump->result, "complete", json_true());
	set_text(dump->result, "file", path);
	return 0;
}

static int dump_one(void *context, struct domain_profile *domain)
{
	const struct dump *dump = context;
	uint64_t number;
	int error;

	if (!domain_profile_info(domain)->settings.flight)
		return dump_recording(domain, dump);
	error = domain_profile_dump(domain, dump->path, dump->after, &number);
	if (error)
		return error;
	set_count(dump->result, "number", number);
	json_object_set_new(dump->result, "complete", json_false());
	return 0;
}

static int do_dump(void *context, json_t *arguments, json_t *result)
{
	struct daemon_control *self = context;
	struct dump dump = { .result = result };
	const char *name;
	int error = read_dump(arguments, &name, &dump);

	return error ? error : domains_find(self->domains, name, dump_one, &dump);
}

static int dump_result_one(void *context, struct domain_profile *domain)
{
	const struct dump *dump = context;

	return domain_profile_dump_result(domain, (uint64_t)dump->number, dump->result);
}

static int do_dump_result(void *context, json_t *arguments, json_t *result)
{
	struct daemon_control *self = context;
	struct dump dump = { .result = result };
	const char *name;

	if (json_unpack_ex(arguments, NULL, 0, "{s:s, s:I !}", "domain", &name, "number",
			   &dump.number))
		return error_set(
			-EINVAL,
			"domain-dump-result takes \"domain\" and \"number\", as domain-dump returned it");
	return domains_find(self->domains, name, dump_result_one, &dump);
}

static int start(struct daemon_control *self, const char *directory)
{
	char path[PATH_MAX];
	int error = control_create(&self->control);

	if (error)
		return error;
	snprintf(path, sizeof(path), "%s/%s.sock", directory, DAEMON_NAME);
	error = control_socket_open_at(&self->socket, path);
	if (error)
		return error;
	control_add(self->control, "status", do_status, self);
	control_add(self->control, "domains", do_domains, self);
	control_add(self->control, "domain-status", do_domain_status, self);
	control_add(self->control, "domain-dump", do_dump, self);
	control_add(self->control, "domain-dump-result", do_dump_result, self);
	return control_start(self->control, self->socket.fd);
}

int daemon_control_open(struct daemon_control **control, const char *directory,
			struct domains *domains, const struct hook_inbox *inbox)
{
	struct daemon_control *self = calloc(1, sizeof(*self));
	int error;

	if (!self)
		return error_set(-ENOMEM, "no memory for the control socket");
	*self = (struct daemon_control){
		.socket.fd = -1, .domains = domains, .inbox = inbox, .started = time(NULL)
	};
	error = start(self, directory);
	if (error)
		daemon_control_close(self);
	else
		*control = self;
	return error;
}

void daemon_control_close(struct daemon_control *control)
{
	if (!control)
		return;
	control_destroy(control->control);
	control_socket_close(&control->socket);
	free(control);
}
