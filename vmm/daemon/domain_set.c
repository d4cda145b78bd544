/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/domain_set.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/hash.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "vmm/daemon/domain_name.h"
#include "vmm/daemon/libvirt_directory.h"

/* Messages about domains that are remembered to be logged once. */
#define LOGGED 256

struct domains {
	struct domains_options options;
	struct thread_check thread;
	int ended_fd;         /* eventfd */
	pthread_mutex_t lock; /* protects LIVE; only the main thread changes it */
	struct domain_profile *live[DOMAINS_MAX];
	size_t live_count;
	struct domain_profile *ending[2 * DOMAINS_MAX]; /* stopped, and not ended yet */
	size_t ending_count;
	uint64_t logged[LOGGED]; /* hashes */
};

int domains_create(struct domains **result, const struct domains_options *options)
{
	struct domains *domains = calloc(1, sizeof(*domains));

	if (!domains)
		return error_set(-ENOMEM, "no memory for the domains");
	domains->options = *options;
	domains->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&domains->lock, NULL);
	if (domains->ended_fd < 0) {
		domains_destroy(domains);
		return error_set(-EMFILE, "no descriptor for the domains");
	}
	*result = domains;
	return 0;
}

static void stop_at(struct domains *domains, size_t index)
{
	struct domain_profile *domain = domains->live[index];

	pthread_mutex_lock(&domains->lock);
	domains->live[index] = domains->live[--domains->live_count];
	pthread_mutex_unlock(&domains->lock);
	domain_profile_stop(domain);
	domains->ending[domains->ending_count++] = domain;
}

/* Stops all before waiting for each. */
void domains_destroy(struct domains *domains)
{
	if (!domains)
		return;
	for (size_t i = 0; i < domains->live_count; i++)
		domain_profile_stop(domains->live[i]);
	while (domains->live_count)
		domain_profile_free(domains->live[--domains->live_count]);
	while (domains->ending_count)
		domain_profile_free(domains->ending[--domains->ending_count]);
	if (domains->ended_fd >= 0)
		close(domains->ended_fd);
	pthread_mutex_destroy(&domains->lock);
	free(domains);
}

/* The index; the count if there is none. */
static size_t find(const struct domains *domains, const char *name)
{
	size_t i = 0;

	while (i < domains->live_count &&
	       strcmp(domain_profile_info(domains->live[i])->name, name) != 0)
		i++;
	return i;
}

/* The process has ended, or the domain is no longer to be profiled. */
static void end_at(struct domains *domains, size_t index, const char *why)
{
	const struct domain_profile *domain = domains->live[index];

	log_info("domain %s: %s", domain_profile_info(domain)->shown,
		 domain_profile_is_leaving(domain) ? "it has migrated to another host" : why);
	stop_at(domains, index);
}

static void drop(struct domains *domains, const char *name)
{
	size_t index = find(domains, name);

	if (index < domains->live_count)
		end_at(domains, index, "its profile ends");
}

/* Also when the process has just ended: libvirt removes the status later. */
static int read_status(struct domains *domains, const char *name, struct domain_xml *status)
{
	size_t index = find(domains, name);
	int error = libvirt_directory_domain(domains->options.directory, name, status);

	if (!error && index < domains->live_count)
		domain_profile_set_leaving(domains->live[index],
					   status->migration == DOMAIN_LEAVES);
	return error;
}

/* True if this message was not logged before. */
static bool is_news(struct domains *domains, const char *name, const char *message)
{
	uint64_t value = hash_add_text(hash_add_text(HASH_START, name), message);
	bool news = domains->logged[value % LOGGED] != value;

	domains->logged[value % LOGGED] = value;
	return news;
}

/* Logs once why domain NAME is WHAT. */
static void warn_once(struct domains *domains, const char *name, const char *what)
{
	char shown[DOMAIN_FILE_SIZE];

	domain_name_escape(name, shown);
	if (is_news(domains, shown, error_message()))
		log_warning("domain %s %s: %s", shown, what, error_message());
}

/* Consumes PROCESS's descriptor. */
static int start(struct domains *domains, const char *name, const struct libvirt_process *process,
		 const struct domain_settings *settings, struct domain_profile **domain)
{
	const struct domain_profile_options options = {
		.name = name,
		.uri = domains->options.uri,
		.pid = process->pid,
		.pid_fd = process->fd,
		.settings = *settings,
		.recordings = domains->options.recordings,
		.metrics = domains->options.metrics,
		.ended_fd = domains->ended_fd,
	};

	if (domains->live_count < DOMAINS_MAX && domains->ending_count < DOMAINS_MAX)
		return domain_profile_start(domain, &options);
	close(process->fd);
	return error_set(-EMFILE, "at most %d domains are profiled at a time", DOMAINS_MAX);
}

/* Errors are retried by the next scan. Consumes PROCESS's descriptor. */
static void begin(struct domains *domains, const char *name, const struct libvirt_process *process,
		  const struct domain_settings *settings)
{
	struct domain_profile *domain;

	if (!start(domains, name, process, settings, &domain)) {
		pthread_mutex_lock(&domains->lock);
		domains->live[domains->live_count++] = domain;
		pthread_mutex_unlock(&domains->lock);
	} else if (is_news(domains, "", error_message())) {
		log_warning("%s", error_message());
	}
}

/* Profiles the domain with SETTINGS from now on. Consumes PROCESS's descriptor. */
static void profile(struct domains *domains, const char *name,
		    const struct libvirt_process *process, const struct domain_settings *settings)
{
	size_t index = find(domains, name);
	const struct domain_profile *live =
		index < domains->live_count ? domains->live[index] : NULL;

	if (live && domain_profile_info(live)->pid == process->pid &&
	    !domain_profile_has_ended(live) &&
	    settings_are_same(&domain_profile_info(live)->settings, settings)) {
		close(process->fd);
		return;
	}
	if (live)
		stop_at(domains, index);
	begin(domains, name, process, settings);
}

static void settings_of(struct domains *domains, const struct domain_xml *xml,
			struct domain_settings *settings)
{
	if (conf_settings(domains->options.conf, xml, settings))
		warn_once(domains, xml->name, "requests an invalid profile");
}

/* Only -ENOENT means that the process has ended; another error may be a lack of descriptors. */
static int find_process(struct domains *domains, const char *name, struct libvirt_process *process)
{
	int error = libvirt_directory_process(domains->options.directory, name, process);

	if (error && error != -ENOENT)
		warn_once(domains, name, "is unchanged");
	return error;
}

/* libvirt replaces status files as a whole, so an unreadable one stays so. A missing one is
 * normal. */
static void log_unreadable(struct domains *domains, const char *name, int error)
{
	char shown[DOMAIN_FILE_SIZE];

	domain_name_escape(name, shown);
	if (error == -ENOENT)
		log_debug("domain %s: %s", shown, error_message());
	else
		warn_once(domains, name, "requests a profile that cannot be read");
}

/* Logged once for each process. Its settings are read when it has arrived. */
static void log_arrival(struct domains *domains, const char *name, pid_t pid)
{
	char shown[DOMAIN_FILE_SIZE], arrival[64];

	domain_name_escape(name, shown);
	snprintf(arrival, sizeof(arrival), "it migrates here from another host, as process %d",
		 pid);
	if (is_news(domains, shown, arrival))
		log_info("domain %s: %s", shown, arrival);
}

void domains_update(struct domains *domains, const char *name, const struct domain_xml *xml)
{
	struct domain_settings settings;
	struct libvirt_process process;
	struct domain_xml status;
	int unknown, error;

	THREAD_CHECK(&domains->thread);
	unknown = read_status(domains, name, &status);
	error = find_process(domains, name, &process);
	if (error == -ENOENT)
		drop(domains, name);
	if (error)
		return;
	if (!unknown && status.migration == DOMAIN_ARRIVES) {
		log_arrival(domains, name, process.pid);
		close(process.fd);
		return;
	}
	if (!xml && !unknown)
		xml = &status;
	if (xml)
		settings_of(domains, xml, &settings);
	else
		log_unreadable(domains, name, unknown);
	if (xml && settings.profile) {
		profile(domains, name, &process, &settings);
		return;
	}
	close(process.fd);
	if (xml) /* else it is unchanged: libvirt may be writing the file */
		drop(domains, name);
}

static void update_by_name(void *context, const char *name)
{
	domains_update(context, name, NULL);
}

/* Also ends profiles of domains whose files are gone. */
int domains_scan(struct domains *domains)
{
	int error;

	THREAD_CHECK(&domains->thread);
	error = libvirt_directory_each(domains->options.directory, update_by_name, domains);
	for (size_t i = 0; !error && i < domains->live_count;) {
		struct libvirt_process process;
		int lost = find_process(domains, domain_profile_info(domains->live[i])->name,
					&process);

		if (!lost)
			close(process.fd);
		if (lost == -ENOENT)
			end_at(domains, i, "its process has ended");
		else
			i++;
	}
	return error;
}

int domains_fd(const struct domains *domains)
{
	return domains->ended_fd;
}

void domains_reap(struct domains *domains)
{
	eventfd_t ignored;

	THREAD_CHECK(&domains->thread);
	eventfd_read(domains->ended_fd, &ignored);
	for (size_t i = 0; i < domains->live_count;) {
		if (domain_profile_has_ended(domains->live[i])) {
			struct domain_xml status;

			read_status(domains, domain_profile_info(domains->live[i])->name, &status);
			end_at(domains, i, "its process has ended");
		} else {
			i++;
		}
	}
	for (size_t i = 0; i < domains->ending_count;) {
		if (domain_profile_has_ended(domains->ending[i])) {
			domain_profile_free(domains->ending[i]);
			domains->ending[i] = domains->ending[--domains->ending_count];
		} else {
			i++;
		}
	}
}

void domains_set_conf(struct domains *domains, const struct conf *conf)
{
	domains->options.conf = conf;
}

void domains_each(struct domains *domains,
		  void (*use)(void *context, struct domain_profile *domain), void *context)
{
	pthread_mutex_lock(&domains->lock);
	for (size_t i = 0; i < domains->live_count; i++)
		use(context, domains->live[i]);
	pthread_mutex_unlock(&domains->lock);
}

/* With the lock held. Printable names are what commands return, and unique. */
static struct domain_profile *find_any(struct domains *domains, const char *name)
{
	size_t index;

	for (size_t i = 0; i < domains->live_count; i++)
		if (!strcmp(domain_profile_info(domains->live[i])->shown, name))
			return domains->live[i];
	index = find(domains, name);
	return index < domains->live_count ? domains->live[index] : NULL;
}

/* -ENOENT only if no such domain runs: otherwise its profile may start. */
static int not_profiled(const struct domains *domains, const char *name)
{
	struct libvirt_process process;
	int error = libvirt_directory_process(domains->options.directory, name, &process);

	if (!error)
		close(process.fd);
	return error == -ENOENT
		       ? error_set(
				 -ENOENT,
				 "no running domain has that name; kvmscope ctl list shows the profiled ones")
		       : error_set(
				 -ENODATA,
				 "that domain is not profiled; kvmscope ctl list shows the profiled ones, kvmscope libvirt --help how to profile one");
}

int domains_find(struct domains *domains, const char *name,
		 int (*use)(void *context, struct domain_profile *domain), void *context)
{
	struct domain_profile *domain;
	int result;

	pthread_mutex_lock(&domains->lock);
	domain = find_any(domains, name);
	result = domain ? use(context, domain) : not_profiled(domains, name);
	pthread_mutex_unlock(&domains->lock);
	return result;
}
