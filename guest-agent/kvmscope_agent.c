/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope-agent: reports the guest's processes and mappings to the host. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest-agent/host_link.h"
#include "guest-agent/host_transport.h"
#include "guest-agent/init.h"
#include "guest-agent/self_install.h"
#include "guest-agent/timing.h"
#include "shared/agent_protocol.h"

/* Retry interval: a port may appear at any time, as its driver may be loaded late. */
#define RETRY_MS 200

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static volatile bool stop;

static void on_signal(int signal)
{
	stop = true;
}

static const char help[] =
	"Usage: kvmscope-agent [--once] [--port NAME | --vsock [CID:]PORT | --fd N]\n"
	"       kvmscope-agent install | uninstall [--root DIR]\n"
	"Report this guest's processes and their mappings to kvmscope on the host.\n"
	"\n"
	"  --once       exit after the first recording, or at once without a port\n"
	"  --port NAME  virtio port to use (" AGENT_PORT_NAME ")\n"
	"  --vsock [CID:]PORT  connect to the host by vsock instead (2, the host)\n"
	"  --fd N       use this open descriptor, and exit when it is closed\n"
	"  --help       show this help\n"
	"  --version    show the version\n"
	"\n"
	"Runs as root until a signal ends it. Waits for the port and the host, and is idle while nothing is\n"
	"recorded. As the first process of an initrd (rdinit=/kvmscope-agent) it runs beside the real init,\n"
	"which is /init or kvmscope_init=PATH on the kernel's command line.\n"
	"\n"
	"install copies the agent to /usr/local/sbin and starts it now and at each boot, by systemd, OpenRC or\n"
	"busybox's init. uninstall reverts that. --root DIR changes a system that is not running.\n"
	"\n"
	"Exit status: 0 after a signal or with --once; 1 on failure; 2 on wrong usage.\n";

struct settings {
	const char *port;
	int fd;     /* -1: use the port or vsock */
	bool vsock; /* connect to ADDRESS */
	struct vsock_address address;
	bool once;
};

/* -1 to continue, else the exit status. */
static int parse(struct settings *settings, int argc, char **argv)
{
	static const struct option options[] = {
		{ "once", no_argument, NULL, 'o' },
		{ "port", required_argument, NULL, 'p' },
		{ "fd", required_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ "vsock", required_argument, NULL, 'v' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'o':
			settings->once = true;
			break;
		case 'p':
			settings->port = optarg;
			break;
		case 'f':
			settings->fd = atoi(optarg);
			break;
		case 'v':
			settings->vsock = true;
			if (vsock_parse(optarg, &settings->address))
				break;
			fprintf(stderr,
				"kvmscope-agent: --vsock '%s' is not [CID:]PORT; see --help\n",
				optarg);
			return EXIT_USAGE;
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'V':
			puts("kvmscope-agent " KVMSCOPE_VERSION);
			return 0;
		default:
			return EXIT_USAGE;
		}
	}
	if (optind == argc)
		return -1;
	fprintf(stderr, "kvmscope-agent: '%s' is not an option; see --help\n", argv[optind]);
	return EXIT_USAGE;
}

static int run_on_descriptor(const struct settings *settings)
{
	int flags = fcntl(settings->fd, F_GETFL);

	if (flags < 0 || fcntl(settings->fd, F_SETFL, flags | O_NONBLOCK)) {
		fprintf(stderr, "kvmscope-agent: descriptor %d: %s\n", settings->fd,
			strerror(errno));
		return EXIT_FAILED;
	}
	return session_serve(settings->fd, settings->once, &stop) ? EXIT_FAILED : 0;
}

static int reach_host(const struct settings *settings)
{
	return settings->vsock ? vsock_open(&settings->address) : port_open(settings->port);
}

static int run(const struct settings *settings)
{
	int error = 0;

	while (!stop) {
		int fd = reach_host(settings);

		if (fd >= 0) {
			error = session_serve(fd, settings->once, &stop);
			close(fd);
		} else if (settings->once || (fd != -ENOENT && fd != error)) {
			error = fd;
			fprintf(stderr, "kvmscope-agent: cannot open %s: %s\n",
				settings->vsock ? "the vsock connection" : settings->port,
				strerror(-fd));
		}
		if (settings->once)
			return error ? EXIT_FAILED : 0;
		if (!stop)
			wait_ms(RETRY_MS);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct settings settings = { .port = AGENT_PORT_NAME, .fd = -1 };
	struct sigaction action = { .sa_handler = on_signal };
	sigset_t signals;
	int status = -1;

	if (argc > 1 && !strcmp(argv[1], "install"))
		return install_command(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "uninstall"))
		return uninstall_command(argc - 1, argv + 1);
	if (getpid() == 1)
		init_start_real(argv);
	else
		status = parse(&settings, argc, argv);
	if (status >= 0)
		return status;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* reference_tasks.h */
	return settings.fd >= 0 ? run_on_descriptor(&settings) : run(&settings);
}
