/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer SOCKET LINE: the host side of a guest's virtio port. Connects to the UNIX socket as soon as
 * it accepts connections, sends LINE, and prints the first line that it receives. Fails after a
 * minute without a listener.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_within_a_minute(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	for (int tries = 0; tries < 600; tries++) {
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);

		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
			return fd;
		close(fd);
		usleep(100000);
	}
	return -1;
}

int main(int argc, char **argv)
{
	int fd = argc == 3 ? connect_within_a_minute(argv[1]) : -1;
	char byte;

	if (fd < 0 || dprintf(fd, "%s\n", argv[2]) < 0)
		return 1;
	while (read(fd, &byte, 1) == 1) {
		putchar(byte);
		if (byte == '\n')
			return 0;
	}
	return 1;
}
