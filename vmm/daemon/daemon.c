/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/rights.h"
#include "vmm/daemon/conf.h"
#include "vmm/daemon/domain_name.h"
#include "vmm/daemon/domain_set.h"
#include "vmm/daemon/hook_inbox.h"
#include "vmm/daemon/metrics.h"
#include "vmm/daemon/push.h"
#include "vmm/daemon/recordings.h"

/* s between two scans of everything, whatever events arrive. */
#define TICK 30
/* ms that a scan waits after libvirt has changed a file, to cover further changes. */
#define SETTLE 200

struct daemon {
	const struct daemon_options *options;
	struct conf conf;
	struct recordings *recordings;
	struct push *push; /* NULL: nothing is pushed */
	struct metrics *metrics;
	struct domains *domains;
	struct hook_inbox *inbox;
	struct daemon_control *control;
	int lock_fd, signal_fd, timer_fd;
	int notify_fd;      /* inotify of libvirt's directory */
	int watch;          /* -1: the directory does not exist yet */
	uint64_t next_scan; /* ms: when the next scan is due */
	bool stop;
};

/* The configuration. */

static int load_conf(const struct daemon_options *options, struct conf *conf)
{
	int error = conf_init(conf);

	if (error)
		return error;
	if (options->conf)
		return conf_load(conf, options->conf);
	error = conf_load(conf, CONF_PATH);
	return error == -ENOENT ? 0 : error;
}

static bool is_same(const char *one, const char *other)
{
	return one && other ? !strcmp(one, other) : one == other;
}

/* Warns about settings that are read at the start only. */
static void warn_of_restart(const struct conf *before, const struct conf *now)
{
	if (!is_same(before->recordings, now->recordings) ||
	    !is_same(before->metrics, now->metrics) || !is_same(before->push, now->push) ||
	    before->recordings_size != now->recordings_size ||
	    before->recordings_age != now->recordings_age ||
	    before->recordings_rotate != now->recordings_rotate ||
	    before->recordings_reserve != now->recordings_reserve)
		log_warning(
			"changes to recordings, metrics and push take effect at the next start");
}

static void reload(struct daemon *daemon)
{
	struct conf conf;

	if (load_conf(daemon->options, &conf)) {
		log_error("the configuration is unchanged: %s", error_message());
		conf_free(&conf);
		return;
	}
	warn_of_restart(&daemon->conf, &conf);
	conf_free(&daemon->conf);
	daemon->conf = conf;
	domains_set_conf(daemon->domains, &daemon->conf);
	log_info("the configuration was reloaded");
}

/* Events. */

/* XML with another domain's name is ignored. */
static void on_hook_message(void *context, const struct hook_message *message)
{
	struct daemon *daemon = context;
	char shown[DOMAIN_FILE_SIZE];
	struct domain_xml xml;
	bool known = false;

	domain_name_escape(message->domain, shown);
	log_debug("libvirt: domain %s: %.32s", shown, message->operation);
	if (message->xml_size && domain_xml_read(&xml, message->xml, message->xml_size))
		log_debug("domain %s: %s", shown, error_message());
	else
		known = message->xml_size && !strcmp(xml.name, message->domain);
	domains_update(daemon->domains, message->domain, known ? &xml : NULL);
}

static void watch_libvirt(struct daemon *daemon)
{
	if (daemon->watch < 0)
		daemon->watch =
			inotify_add_watch(daemon->notify_fd, daemon->options->libvirt_directory,
					  IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE | IN_ONLYDIR);
}

static void handle_signal(struct daemon *daemon)
{
	struct signalfd_siginfo signal;

	if (read(daemon->signal_fd, &signal, sizeof(signal)) != sizeof(signal))
		return;
	if (signal.ssi_signo == SIGHUP)
		reload(daemon);
	else
		daemon->stop = true;
}

/* Scans everything within MILLISECONDS. Repeated events do not postpone that. */
static void scan_within(struct daemon *daemon, unsigned int milliseconds)
{
	uint64_t due = clock_ms(CLOCK_MONOTONIC) + milliseconds;
	const struct itimerspec times = {
		.it_value = { .tv_sec = (time_t)(due / MS_PER_S),
			      .tv_nsec = (long)(due % MS_PER_S * NS_PER_MS) },
		.it_interval = { .tv_sec = TICK },
	};

	if (daemon->next_scan <= due)
		return;
	daemon->next_scan = due;
	timerfd_settime(daemon->timer_fd, TFD_TIMER_ABSTIME, &times, NULL);
}

static void drain(int fd)
{
	char ignored[4096];

	while (read(fd, ignored, sizeof(ignored)) > 0)
		;
}

/* True if inotify(7) reports that the directory, and thus the watch, was removed. */
static bool is_removed(const char *events, size_t size)
{
	struct inotify_event event;

	for (size_t at = 0; at + sizeof(event) <= size; at += sizeof(event) + event.len) {
		memcpy(&event, events + at, sizeof(event));
		if (event.mask & IN_IGNORED)
			return true;
	}
	return false;
}

static void handle_directory_change(struct daemon *daemon)
{
	char events[4096];
	ssize_t size;

	while ((size = read(daemon->notify_fd, events, sizeof(events))) > 0)
		if (is_removed(events, (size_t)size))
			daemon->watch = -1;
	scan_within(daemon, SETTLE);
}

static void scan_everything(struct daemon *daemon)
{
	drain(daemon->timer_fd);
	daemon->next_scan = clock_ms(CLOCK_MONOTONIC) + (uint64_t)TICK * 1000;
	watch_libvirt(daemon);
	hook_inbox_read(daemon->inbox);
	if (domains_scan(daemon->domains))
		log_debug("%s", error_message());
	recordings_tidy(daemon->recordings);
}

static void turn(struct daemon *daemon)
{
	struct pollfd events[] = {
		{ .fd = daemon->signal_fd, .events = POLLIN },
		{ .fd = hook_inbox_fd(daemon->inbox), .events = POLLIN },
		{ .fd = domains_fd(daemon->domains), .events = POLLIN },
		{ .fd = daemon->notify_fd, .events = POLLIN },
		{ .fd = daemon->timer_fd, .events = POLLIN },
	};

	if (poll(events, sizeof(events) / sizeof(events[0]), -1) < 0)
		return;
	if (events[0].revents) {
		handle_signal(daemon);
		scan_within(daemon, 1);
	}
	if (events[1].revents)
		hook_inbox_read(daemon->inbox);
	if (events[2].revents)
		domains_reap(daemon->domains);
	if (events[3].revents)
		handle_directory_change(daemon);
	if (events[4].revents)
		scan_everything(daemon);
}

/* Start and end. */

static int open_descriptors(struct daemon *daemon)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	daemon->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	daemon->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	daemon->notify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	return daemon->signal_fd < 0 || daemon->timer_fd < 0 || daemon->notify_fd < 0
		       ? error_set(-errno, "cannot create the daemon's descriptors: %s",
				   strerror(errno))
		       : 0;
}

/* The run directory belongs to one daemon at a time. */
static int lock_directory(struct daemon *daemon)
{
	const char *directory = daemon->options->run_directory;
	char path[PATH_MAX];

	if (mkdir(directory, 0755) && errno != EEXIST)
		return error_set(-errno, "cannot create the directory %s: %s", directory,
				 strerror(errno));
	if (snprintf(path, sizeof(path), "%s/%s.lock", directory, DAEMON_NAME) >= (int)sizeof(path))
		return error_set(-ENAMETOOLONG, "the path %s is too long", directory);
	daemon->lock_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (daemon->lock_fd < 0)
		return error_set(-errno, "cannot open %s: %s", path, strerror(errno));
	if (flock(daemon->lock_fd, LOCK_EX | LOCK_NB))
		return error_set(-EBUSY, "another kvmscoped is running: it has locked %s", path);
	return 0;
}

/* Creates /var/lib/kvmscope if systemd did not. Errors are reported when files in it are opened. */
static void create_parent(const char *path)
{
	char parent[PATH_MAX];

	snprintf(parent, sizeof(parent), "%s", path);
	mkdir(dirname(parent), 0700);
}

/* A pushed profile is made of one file. */
static uint64_t file_duration(const struct conf *conf)
{
	return conf->push && conf->push_interval < conf->recordings_rotate
		       ? conf->push_interval
		       : conf->recordings_rotate;
}

static int open_recordings(struct daemon *daemon)
{
	const struct conf *conf = &daemon->conf;
	const struct recordings_options options = {
		.directory = conf->recordings,
		.max_size = conf->recordings_size,
		.max_age = conf->recordings_age,
		.rotate = file_duration(conf),
		.reserve = conf->recordings_reserve,
		.hand_on = conf->push,
	};

	create_parent(conf->recordings);
	return recordings_open(&daemon->recordings, &options);
}

static int start_push(struct daemon *daemon)
{
	const struct conf *conf = &daemon->conf;
	char host[HOST_NAME_MAX + 1] = "";
	const struct push_options options = {
		.url = conf->push,
		.format = conf->push_format,
		.header_file = conf->push_headers,
		.ca_file = conf->push_ca,
		.spool = conf->push_spool,
		.spool_size = conf->push_spool_size,
		.host = host,
		.recordings = daemon->recordings,
	};

	if (!conf->push)
		return 0;
	gethostname(host, sizeof(host) - 1);
	create_parent(conf->push_spool);
	return push_start(&daemon->push, &options);
}

static int start_metrics(struct daemon *daemon)
{
	const struct metrics_options options = {
		.listen = daemon->conf.metrics,
		.recordings = daemon->recordings,
		.push = daemon->push,
	};

	return metrics_start(&daemon->metrics, &options);
}

static int start_domains(struct daemon *daemon)
{
	const struct domains_options options = {
		.conf = &daemon->conf,
		.recordings = daemon->recordings,
		.metrics = daemon->metrics,
		.directory = daemon->options->libvirt_directory,
		.uri = daemon->options->uri,
	};

	return domains_create(&daemon->domains, &options);
}

/*
 * The capabilities of kvmscoped.service, when it is started by hand: to read processes and their
 * memory, to sample them, to use the sockets and files of their users, and what else a backend may
 * need (docs/how-to-attach.md).
 */
static int give_up_rights(void)
{
	static const unsigned int kept[] = { CAP_PERFMON, CAP_BPF, CAP_SYS_PTRACE, CAP_DAC_OVERRIDE,
					     CAP_SYS_ADMIN };

	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	/* For the rings that the kernel fills; root had CAP_IPC_LOCK. */
	if (setrlimit(RLIMIT_MEMLOCK, &all))
		log_debug("cannot raise the limit of locked memory: %s", strerror(errno));
	return rights_keep_only(kept, sizeof(kept) / sizeof(kept[0]));
}

static int open_all(struct daemon *daemon)
{
	const struct daemon_options *options = daemon->options;
	int error = load_conf(options, &daemon->conf);

	if (!error)
		error = give_up_rights();
	if (!error)
		error = open_descriptors(daemon);
	if (!error)
		error = lock_directory(daemon);
	if (!error)
		error = open_recordings(daemon);
	if (!error)
		error = start_push(daemon);
	if (!error)
		error = start_metrics(daemon);
	if (!error)
		error = start_domains(daemon);
	if (!error)
		error = hook_inbox_open(&daemon->inbox, options->run_directory, on_hook_message,
					daemon);
	if (!error)
		error = daemon_control_open(&daemon->control, options->run_directory,
					    daemon->domains, daemon->inbox);
	return error;
}

static void close_all(struct daemon *daemon)
{
	const int fds[] = { daemon->lock_fd, daemon->signal_fd, daemon->timer_fd,
			    daemon->notify_fd };

	daemon_control_close(daemon->control);
	hook_inbox_close(daemon->inbox);
	domains_destroy(daemon->domains);
	metrics_stop(daemon->metrics);
	push_stop(daemon->push);
	recordings_close(daemon->recordings);
	conf_free(&daemon->conf);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int daemon_run(const struct daemon_options *options)
{
	struct daemon daemon = { .options = options,
				 .lock_fd = -1,
				 .signal_fd = -1,
				 .timer_fd = -1,
				 .notify_fd = -1,
				 .watch = -1,
				 .next_scan = UINT64_MAX };
	int error = open_all(&daemon);

	if (!error) {
		log_info("kvmscoped " KVMSCOPE_VERSION " scans %s for domains",
			 options->libvirt_directory);
		scan_within(&daemon, 1);
		sd_notify(0, "READY=1");
		while (!daemon.stop)
			turn(&daemon);
		sd_notify(0, "STOPPING=1");
	}
	close_all(&daemon);
	return error;
}
