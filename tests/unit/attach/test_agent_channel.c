/* SPDX-License-Identifier: Apache-2.0 */
/* The socket of the guest agent, in QEMU's command line and in the kernel's list of sockets. */
#include "vmm/attach/agent_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"

#define NAME                 "org.kvmscope.agent.0"
#define CHANNEL_OF(line, at) agent_channel_parse(line, sizeof(line), at)
#define JSON_DEVICE(id, name)                                                                      \
	"{\"driver\":\"virtserialport\",\"chardev\":\"" id "\",\"name\":\"" name "\"}"

TEST(agent_channel, is_found_in_command_lines)
{
	struct agent_channel_address address;

	CHECK(CHANNEL_OF("qemu\0-chardev\0socket,id=a,path=/run/x,,y,server=on,wait=off\0-device\0"
			 "virtserialport,bus=b.0,chardev=a,name=" NAME,
			 &address));
	CHECK_STRING(address.path, "/run/x,y");
	/* libvirt 9 */
	CHECK(CHANNEL_OF(
		"qemu\0-chardev\0socket,id=charchannel0,fd=33,server=on,wait=off\0-device\0" JSON_DEVICE(
			"charchannel0", NAME),
		&address));
	CHECK_STRING(address.path, "");
	CHECK_EQUAL(address.fd, 33);
}

TEST(agent_channel, other_command_lines_have_no_channel)
{
	struct agent_channel_address address;

	CHECK(!CHANNEL_OF("qemu\0-chardev\0socket,id=a,fd=3,server=on\0-device\0" JSON_DEVICE(
				  "a", "org.qemu.guest_agent.0"),
			  &address));
	CHECK(!CHANNEL_OF(
		"qemu\0-chardev\0socket,id=b,fd=3,server=on\0-device\0" JSON_DEVICE("a", NAME),
		&address));
	CHECK(!CHANNEL_OF("qemu\0-chardev\0socket,id=a,fd=3\0-device\0" JSON_DEVICE("a", NAME),
			  &address));
	CHECK(!CHANNEL_OF(
		"qemu\0-chardev\0socket,id=a,fd=-3,server=on\0-device\0" JSON_DEVICE("a", NAME),
		&address));
	CHECK(!CHANNEL_OF(
		"qemu\0-chardev\0socket,id=a,fd=99999999999,server=on\0-device\0" JSON_DEVICE("a",
											      NAME),
		&address));
	CHECK(!CHANNEL_OF("qemu\0-chardev\0spicevmc,id=a\0-device\0" JSON_DEVICE("a", NAME),
			  &address));
	CHECK(!CHANNEL_OF("qemu\0-chardev\0socket,id=a,fd=3,server=on\0-device\0{\"driver\":[]",
			  &address));
	CHECK(!CHANNEL_OF(
		"qemu\0-chardev\0socket,id=a,fd=3,server=on\0-device\0virtconsole,chardev=a,name=" NAME,
		&address));
	CHECK(!CHANNEL_OF("qemu\0-device", &address));
	CHECK(!agent_channel_parse("-device", 7, &address));
	CHECK(!agent_channel_parse("", 0, &address));
}

TEST(agent_channel, lines_of_sockets_are_parsed)
{
	char line[] = "0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b\n";
	char connected[] = "ffff8881028c6600: 00000003 00000000 00000000 0001 03 777 /run/x\n";
	char embryo[] = "ffff8881028c6600: 00000003 00000000 00000000 0001 02     0 /run/x\n";
	char unnamed[] = "ffff8881028c6600: 00000003 00000000 00000000 0001 03 777\n";
	char abstract[] = "ffff8881028c6600: 00000002 00000000 00010000 0001 01 777 @/run/x\n";
	char header[] = "Num       RefCount Protocol Flags    Type St Inode Path\n";
	struct agent_channel_socket socket;

	CHECK(agent_channel_parse_socket(line, &socket));
	CHECK(socket.listens && !socket.connected && socket.inode == 12345);
	CHECK_STRING(socket.path, "/run/a b");
	CHECK(agent_channel_parse_socket(connected, &socket));
	CHECK(!socket.listens && socket.connected && socket.inode == 777);
	CHECK(agent_channel_parse_socket(embryo, &socket) && !socket.inode && !socket.connected);
	CHECK(!agent_channel_parse_socket(unnamed, &socket));
	CHECK(!agent_channel_parse_socket(abstract, &socket));
	CHECK(!agent_channel_parse_socket(header, &socket));
}

/* This process plays the VMM, with a socket at PATH. */
static int listen_at(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	CHECK(!bind(fd, (const struct sockaddr *)&address, sizeof(address)) && !listen(fd, 1));
	return fd;
}

static void be_process(struct vmm_process *process, pid_t pid)
{
	*process = (struct vmm_process){
		.pid = pid,
		.directory = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.name = "test",
	};
}

TEST(agent_channel, one_client_at_a_time_and_only_of_the_process_itself)
{
	char directory[] = "/tmp/kvmscope-channel-XXXXXX", path[64];
	struct vmm_process self, other;
	int listener, first, accepted;

	REQUIRE(mkdtemp(directory) != NULL);
	snprintf(path, sizeof(path), "%s/socket", directory);
	be_process(&self, getpid());
	be_process(&other, 1);
	CHECK_EQUAL(agent_channel_connect(&self, path), -ENOENT);
	listener = listen_at(path);
	CHECK_EQUAL(agent_channel_connect(&other, path), -EPERM);
	first = agent_channel_connect(&self, path);
	CHECK(first >= 0);
	close(accept(listener, NULL, NULL)); /* the refused connection */
	accepted = accept(listener, NULL, NULL);
	CHECK_EQUAL(agent_channel_connect(&self, path), -EBUSY);
	CHECK(strstr(error_message(), "another client"));
	close(first);
	close(accepted);
	first = agent_channel_connect(&self, path);
	CHECK(first >= 0);
	CHECK_EQUAL(agent_channel_connect(&self, NULL), -ENOENT); /* this is not QEMU */
	CHECK(!agent_channel_exists(&self));
	close(first);
	close(listener);
	unlink(path);
	rmdir(directory);
	close(self.directory);
	close(other.directory);
}
