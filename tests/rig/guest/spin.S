/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One function, spin_NAME, that counts its argument down, at offset PLACE of the code's page: an
 * address in that page identifies the running image, independently of any reported mapping. As a
 * program it counts down COUNT and exits.
 */
#define GLUE_(a, b) a##b
#define GLUE(a, b)  GLUE_(a, b)
#define SPIN        GLUE(spin_, NAME)

	.text
#ifdef COUNT
	.globl _start
_start:
	mov $COUNT, %rdi
	call SPIN
	mov $60, %eax	/* exit */
	xor %edi, %edi
	syscall
#endif
	.org PLACE
	.globl SPIN
	.type SPIN, @function
SPIN:
	dec %rdi
	jnz SPIN
	ret
	.size SPIN, . - SPIN
	.section .note.GNU-stack, "", @progbits
