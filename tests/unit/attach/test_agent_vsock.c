/* SPDX-License-Identifier: Apache-2.0 */
/* The host's end of the vsock connection; with the agent on the same machine, if the kernel
 * allows that. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "tests/unit/shim/test.h"
#include "vmm/attach/agent_channel.h"

#define AGENT "build/agent/kvmscope-agent"

TEST(agent_vsock_address, has_the_guest_and_a_port)
{
	struct agent_vsock_address address;

	CHECK(agent_vsock_parse("vsock:42:7000", &address));
	CHECK_EQUAL(address.cid, 42);
	CHECK_EQUAL(address.port, 7000);
	CHECK(!agent_vsock_parse("vsock:42", &address));
	CHECK(!agent_vsock_parse("vsock:42:", &address));
	CHECK(!agent_vsock_parse("vsock::7000", &address));
	CHECK(!agent_vsock_parse("vsock:-1:7000", &address));
	CHECK(!agent_vsock_parse("vsock:42:7000x", &address));
	CHECK(!agent_vsock_parse("vsock:4294967295:7000", &address));
	CHECK(!agent_vsock_parse("/run/vsock:42:7000", &address));
}

static pid_t run_agent(unsigned int port)
{
	char address[32];
	pid_t child = fork();

	if (child)
		return child;
	snprintf(address, sizeof(address), "%u:%u", VMADDR_CID_LOCAL, port);
	execl(AGENT, AGENT, "--vsock", address, NULL);
	_exit(127);
}

/* Listens on a free port, and stores it in the address. */
static int listen_somewhere(struct agent_vsock_address *address)
{
	int fd = -EADDRINUSE;

	for (address->port = 7000; fd == -EADDRINUSE && address->port < 7100; address->port++)
		fd = agent_vsock_listen(address);
	address->port--;
	return fd;
}

/* Linux's loopback (module vsock_loopback) connects a machine with itself. */
static int connect_as_anybody(const struct agent_vsock_address *address)
{
	const struct sockaddr_vm local = { .svm_family = AF_VSOCK,
					   .svm_cid = VMADDR_CID_LOCAL,
					   .svm_port = address->port };
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&local, sizeof(local))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

TEST(agent_vsock_guest, only_the_expected_guest_is_accepted)
{
	struct agent_vsock_address address = { .cid = VMADDR_CID_LOCAL }, other = { .cid = 99 };
	int listener = listen_somewhere(&address), fd = -1, other_program;
	struct pollfd waiting = { .fd = listener, .events = POLLIN };
	pid_t agent;

	if (listener == -EAFNOSUPPORT)
		SKIP("this machine's kernel has no vsock");
	REQUIRE(listener >= 0);
	other_program = connect_as_anybody(&address);
	if (other_program < 0) {
		close(listener);
		SKIP("no vsock connects this machine with itself (Linux module vsock_loopback)");
	}
	/* From an unprivileged port. */
	CHECK_EQUAL(poll(&waiting, 1, 60000), 1);
	CHECK_EQUAL(agent_vsock_accept(listener, &address), -EAGAIN);
	close(other_program);
	CHECK_EQUAL(agent_vsock_listen(&address), -EADDRINUSE);
	agent = run_agent(address.port);
	CHECK_EQUAL(poll(&waiting, 1, 60000), 1);
	CHECK_EQUAL(agent_vsock_accept(listener, &other), -EAGAIN);
	/* After it was closed, the client connects again. */
	CHECK_EQUAL(poll(&waiting, 1, 60000), 1);
	fd = agent_vsock_accept(listener, &address);
	CHECK(fd >= 0);
	if (fd >= 0)
		close(fd);
	kill(agent, SIGTERM);
	waitpid(agent, NULL, 0);
	close(listener);
}
