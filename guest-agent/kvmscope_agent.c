// SPDX-License-Identifier: Apache-2.0
/* kvmscope-agent: tells the host what runs in this guest. */
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

/* A port may come any time: its driver may be a module that is loaded late. */
#define LOOK_MS 200

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static volatile bool stop;

static void on_signal(int signal)
{
	stop = true;
}

static const char help[] =
	"Usage: kvmscope-agent [--once] [--port NAME | --vsock [CID:]PORT | --fd N]\n"
	"       kvmscope-agent install | uninstall [--root DIR]\n"
	"Tell kvmscope on the host which processes run in this guest and what they have mapped.\n"
	"\n"
	"  --once       end with the first recording, or at once if there is no port\n"
	"  --port NAME  virtio port to talk on (" AGENT_PORT_NAME ")\n"
	"  --vsock [CID:]PORT  connect to the host by vsock instead (2, the host)\n"
	"  --fd N       talk on this open descriptor, and end with it\n"
	"  --help       this text\n"
	"  --version    the version\n"
	"\n"
	"Runs until it is ended by a signal, as root. It waits for the port and for the host, and while nobody records\n"
	"it does nothing. As the first process of an initrd (rdinit=/kvmscope-agent) it starts itself beside the real\n"
	"init, which is /init or what the kernel's command line names as kvmscope_init=PATH.\n"
	"\n"
	"install copies it to /usr/local/sbin and has it started with the system, now and at each boot: by systemd, OpenRC\n"
	"or busybox's init, whatever is there. uninstall takes that back. DIR: in a system that is not running.\n"
	"\n"
	"Exit status: 0 ended by a signal or with --once; 1 failed; 2 wrong usage.\n";

struct settings {
	const char *port;
	int fd;     /* -1: by the port, or vsock */
	bool vsock; /* to the next */
	struct vsock_address address;
	bool once;
};

/* -1 to go on, else the exit status. */
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
				"kvmscope-agent: --vsock '%s' is no [CID:]PORT; see --help\n",
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
	fprintf(stderr, "kvmscope-agent: '%s' is no option; see --help\n", argv[optind]);
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
			fprintf(stderr, "kvmscope-agent: can not open %s: %s\n",
				settings->vsock ? "the vsock connection" : settings->port,
				strerror(-fd));
		}
		if (settings->once)
			return error ? EXIT_FAILED : 0;
		if (!stop)
			wait_ms(LOOK_MS);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct settings settings = { .port = AGENT_PORT_NAME, .fd = -1 };
	struct sigaction action = { .sa_handler = on_signal };
	sigset_t taken;
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
	sigemptyset(&taken);
	sigaddset(&taken, SIGTERM);
	sigaddset(&taken, SIGINT);
	sigprocmask(SIG_BLOCK, &taken, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* reference_tasks.h */
	return settings.fd >= 0 ? run_on_descriptor(&settings) : run(&settings);
}
