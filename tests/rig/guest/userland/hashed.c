/* SPDX-License-Identifier: Apache-2.0 */
/* hashed CALLS MILLISECONDS: works in a kernel module, rmd160, by calls from two functions. */
#include <linux/if_alg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "tests/rig/guest/userland/busy.h"

static int operation;
static char block[4 << 10];

static void refuse(const char *what)
{
	perror(what);
	exit(1);
}

static void open_hash(void)
{
	const struct sockaddr_alg address = { .salg_family = AF_ALG,
					      .salg_type = "hash",
					      .salg_name = "rmd160" };
	int hash = socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (hash < 0 || bind(hash, (const struct sockaddr *)&address, sizeof(address)))
		refuse("hashed: rmd160");
	operation = accept(hash, NULL, NULL);
	if (operation < 0)
		refuse("hashed: accept");
}

/* MSG_MORE: the hash is never read. */
BUSY_FUNCTION static void hash_often(void)
{
	if (send(operation, block, sizeof(block), MSG_MORE) != sizeof(block))
		refuse("hashed: send");
}

BUSY_FUNCTION static void hash_seldom(void)
{
	if (send(operation, block, sizeof(block), MSG_MORE) != sizeof(block))
		refuse("hashed: send");
}

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "hash_often", hash_often, 9, 1 },
					     { "hash_seldom", hash_seldom, 1, 1 },
					     { NULL, NULL, 0, 0 } };

	open_hash();
	BUSY_CALL(busy_run("hashed", tasks, argc, argv));
	return 0;
}
