/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls CALLS MILLISECONDS: kernel functions that fill memory and hash it, including the module
 * rmd160, by several system calls from two functions.
 */
#include <fcntl.h>
#include <linux/if_alg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/rig/guest/userland/busy.h"

static int zero, urandom, operation;
static char block[128 << 10];

static void refuse(const char *what)
{
	perror(what);
	exit(1);
}

static void open_all(void)
{
	const struct sockaddr_alg address = { .salg_family = AF_ALG,
					      .salg_type = "hash",
					      .salg_name = "rmd160" };
	int hash = socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (hash < 0 || bind(hash, (const struct sockaddr *)&address, sizeof(address)))
		refuse("calls: rmd160");
	operation = accept(hash, NULL, NULL);
	zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	urandom = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	if (operation < 0 || zero < 0 || urandom < 0)
		refuse("calls: open");
}

static void check(ssize_t done, size_t size)
{
	if (done != (ssize_t)size)
		refuse("calls");
}

BUSY_FUNCTION static void call_all(void)
{
	struct iovec clear = { .iov_base = block, .iov_len = sizeof(block) };
	struct iovec fill = { .iov_base = block, .iov_len = 8 << 10 };

	check(read(zero, clear.iov_base, clear.iov_len), clear.iov_len);
	check(pread(zero, clear.iov_base, clear.iov_len, 0), clear.iov_len);
	check(readv(zero, &clear, 1), clear.iov_len);
	check(preadv(zero, &clear, 1, 0), clear.iov_len);
	check(read(urandom, fill.iov_base, fill.iov_len), fill.iov_len);
	check(readv(urandom, &fill, 1), fill.iov_len);
	check(getrandom(fill.iov_base, fill.iov_len, 0), fill.iov_len);
	check(send(operation, fill.iov_base, fill.iov_len, MSG_MORE), fill.iov_len);
}

BUSY_FUNCTION static void call_often(void)
{
	BUSY_CALL(call_all());
}

BUSY_FUNCTION static void call_seldom(void)
{
	BUSY_CALL(call_all());
}

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "call_often", call_often, 3, 1 },
					     { "call_seldom", call_seldom, 1, 1 },
					     { NULL, NULL, 0, 0 } };

	open_all();
	BUSY_CALL(busy_run("calls", tasks, argc, argv));
	return 0;
}
