/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies standard input to port 0xe9, which Bochs copies to its standard output: the only output of
 * the Intel rig that is not limited by a baud rate.
 */
#include <stdio.h>
#include <sys/io.h>

int main(void)
{
	int byte;

	if (ioperm(0xe9, 1, 1)) {
		perror("port-writer: ioperm");
		return 1;
	}
	while ((byte = getchar()) != EOF)
		outb((unsigned char)byte, 0xe9);
	return ferror(stdin) != 0;
}
