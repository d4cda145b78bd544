/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/debuginfod_server.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/run_command.h"

bool debuginfod_server_runs(void)
{
	return command_succeeds("debuginfod --version");
}

static int free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;

	if (!bind(fd, (struct sockaddr *)&address, size) &&
	    !getsockname(fd, (struct sockaddr *)&address, &size))
		port = ntohs(address.sin_port);
	close(fd);
	return port;
}

void debuginfod_server_start(struct debuginfod_server *server)
{
	char port[16], files[80], cache[96];

	server->port = free_port();
	snprintf(port, sizeof(port), "%d", server->port);
	snprintf(files, sizeof(files), "%s/files", server->home);
	snprintf(cache, sizeof(cache), "%s/server", server->home);
	server->pid = fork();
	if (server->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("DEBUGINFOD_CACHE_PATH", cache, true);
	unsetenv("DEBUGINFOD_URLS");
	if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
		_exit(127);
	execlp("debuginfod", "debuginfod", "-F", "-p", port, "-d", ":memory:", files, NULL);
	_exit(127);
}

void debuginfod_server_stop(const struct debuginfod_server *server)
{
	kill(server->pid, SIGKILL);
	waitpid(server->pid, NULL, 0);
}
