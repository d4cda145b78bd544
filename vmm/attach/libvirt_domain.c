/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/libvirt_domain.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libvirt/libvirt-qemu.h>
#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/qemu_command_line.h"

/* Functions of libvirt.so.0 and libvirt-qemu.so.0, whose SONAMEs have not changed since 2005. */
#define LIBVIRT_FUNCTIONS(use)                                                                     \
	use(virConnectOpenAuth) use(virConnectClose) use(virDomainLookupByName) use(virDomainFree) \
		use(virDomainIsActive) use(virDomainGetUUIDString) use(virGetLastError)            \
			use(virSetErrorFunc) use(virConnectSetKeepAlive)                           \
				use(virDomainQemuMonitorCommand) use(virDomainMemoryPeek)

#define DECLARE(function) __typeof__(&(function)) function;

static struct {
	void *library;
	LIBVIRT_FUNCTIONS(DECLARE)
} libvirt;

struct domain {
	virConnectPtr connection;
	virDomainPtr domain;
	char *name;
	char uuid[VIR_UUID_STRING_BUFLEN];
};

/* By default libvirt prints errors itself. */
static void ignore_error(void *context, virErrorPtr error)
{
}

#define LOAD(function) libvirt.function = dlsym(libvirt.library, #function);
#define CHECK(function)                                                                            \
	if (!libvirt.function)                                                                     \
		missing = #function;

static void load(void)
{
	const char *missing = NULL;

	libvirt.library = dlopen("libvirt-qemu.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!libvirt.library)
		return;
	LIBVIRT_FUNCTIONS(LOAD)
	LIBVIRT_FUNCTIONS(CHECK)
	if (missing) {
		dlclose(libvirt.library);
		libvirt.library = NULL;
		return;
	}
	libvirt.virSetErrorFunc(NULL, ignore_error);
}

int domain_probe(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return libvirt.library
		       ? 0
		       : error_set(
				 -ENOTSUP,
				 "libvirt's client libraries are not installed (Debian: libvirt0); "
				 "without them select the VM by --pid");
}

/* libvirt's message, which may contain text of the domain. */
static int fail(int error, const char *what, const char *name)
{
	const virError *last = libvirt.virGetLastError();
	char words[256];
	size_t i = 0;

	for (; last && last->message && last->message[i] && i < sizeof(words) - 1; i++)
		words[i] = isprint((unsigned char)last->message[i]) ? last->message[i] : '?';
	words[i] = '\0';
	if (last && last->code == VIR_ERR_NO_DOMAIN)
		error = -ENOENT;
	return error_set(error, "%s '%s': %s", what, name, i ? words : "libvirt gives no reason");
}

static int open_connection(struct domain *domain, const char *uri)
{
	virConnectAuth auth = { 0 };
	int error;

	domain->connection = libvirt.virConnectOpenAuth(uri, &auth, 0);
	if (domain->connection)
		return 0;
	error = fail(-ECONNREFUSED, "cannot connect to libvirt at", uri ? uri : "its default URI");
	return error_set(error, "%s; is it running? --connect sets its URI", error_message());
}

/* virsh uses the session URI for users other than root, which often surprises them. */
static int not_found(const struct domain *domain, const char *uri)
{
	int error = fail(-EREMOTEIO, "cannot find the domain", domain->name);

	if (uri || !geteuid() || error != -ENOENT)
		return error;
	return error_set(error, "%s; system domains are at --connect qemu:///system",
			 error_message());
}

static int look_up(struct domain *domain, const char *uri)
{
	domain->domain = libvirt.virDomainLookupByName(domain->connection, domain->name);
	if (!domain->domain)
		return not_found(domain, uri);
	if (libvirt.virDomainGetUUIDString(domain->domain, domain->uuid))
		return fail(-EREMOTEIO, "cannot inspect the domain", domain->name);
	if (libvirt.virDomainIsActive(domain->domain) != 1)
		return error_set(-ESRCH, "the domain '%s' is not running", domain->name);
	return 0;
}

int domain_open(struct domain **result, const char *name, const char *uri)
{
	int error = domain_probe();
	struct domain *domain;

	if (error)
		return error;
	domain = calloc(1, sizeof(*domain));
	if (!domain || !(domain->name = strdup(name))) {
		free(domain);
		return error_set(-ENOMEM, "no memory for the domain '%s'", name);
	}
	error = open_connection(domain, uri);
	if (!error)
		error = look_up(domain, uri);
	if (error)
		domain_close(domain);
	else
		*result = domain;
	return error;
}

void domain_close(struct domain *domain)
{
	if (!domain)
		return;
	if (domain->domain)
		libvirt.virDomainFree(domain->domain);
	if (domain->connection)
		libvirt.virConnectClose(domain->connection);
	free(domain->name);
	free(domain);
}

int domain_monitor_command(const struct domain *domain, const char *command, char **reply)
{
	*reply = NULL;
	if (!libvirt.virDomainQemuMonitorCommand(domain->domain, command, reply, 0) && *reply)
		return 0;
	if (libvirt.virGetLastError() &&
	    libvirt.virGetLastError()->code == VIR_ERR_OPERATION_INVALID)
		return fail(-ESRCH, "there is no longer a monitor of the domain", domain->name);
	return fail(-EREMOTEIO, "libvirt cannot use the monitor of the domain", domain->name);
}

int domain_read_memory(const struct domain *domain, uint64_t gpa, void *to, size_t size)
{
	if (!libvirt.virDomainMemoryPeek(domain->domain, gpa, size, to, VIR_MEMORY_PHYSICAL))
		return 0;
	return fail(-EREMOTEIO, "libvirt cannot read the memory of the domain", domain->name);
}

/* The process */

/* Matches "guest=NAME" at the start; commas in names are doubled (libvirt:
 * virQEMUBuildBufferEscapeComma()). */
static bool names_guest(const char *word, const char *name)
{
	static const char key[] = "guest=";

	if (strncmp(word, key, strlen(key)) != 0)
		return false;
	word += strlen(key);
	for (; *name; name++) {
		if (*word++ != *name || (*name == ',' && *word++ != ','))
			return false;
	}
	return !*word || (*word == ',' && word[1] != ',');
}

bool domain_parse_command_line(const char *command_line, size_t size, const char *name,
			       const char *uuid)
{
	struct qemu_arguments words = qemu_arguments_of(command_line, size);
	const char *word, *value;
	bool named = false, same = false;

	while (qemu_next_pair(&words, &word, &value)) {
		named |= !strcmp(word, "-name") && names_guest(value, name);
		same |= !strcmp(word, "-uuid") && !strcmp(value, uuid);
	}
	return named && same;
}

struct process_search {
	const struct domain *domain;
	pid_t pid;
	int count;
};

static bool check_process(void *context, int pid)
{
	struct process_search *search = context;
	size_t size;
	char *line = qemu_command_line_read(pid, &size);

	if (domain_parse_command_line(line, size, search->domain->name, search->domain->uuid)) {
		search->pid = pid;
		search->count++;
	}
	free(line);
	return true;
}

int domain_find_process(const struct domain *domain, pid_t *pid)
{
	struct process_search search = { .domain = domain };

	proc_each_number(AT_FDCWD, "/proc", check_process, &search);
	*pid = search.pid;
	if (search.count == 1)
		return 0;
	if (search.count)
		return error_set(-E2BIG,
				 "%d processes have the command line of domain '%s': select one "
				 "by --pid",
				 search.count, domain->name);
	return error_set(-ENOENT,
			 "no process of this machine is the domain '%s': it runs elsewhere, in a "
			 "PID namespace that is not visible here, or not in QEMU",
			 domain->name);
}
