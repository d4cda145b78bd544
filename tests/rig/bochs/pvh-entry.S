/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boot sector of the Intel rig. Bochs has loaded the kernel and its initrd into RAM before the BIOS
 * runs. This code enters the kernel by PVH: 32-bit protected mode, flat segments, paging off, EBX
 * the address of hvm_start_info. ENTRY and START_INFO are passed with the assembler's -D.
 */
	.code16
	.globl	_start
_start:
	cli
	xorw	%ax, %ax
	movw	%ax, %ds
	inb	$0x92, %al		/* system control port A: */
	orb	$2, %al			/* A20 on, */
	andb	$0xfe, %al		/* and no reset */
	outb	%al, $0x92
	lgdtl	gdt_pointer
	movl	%cr0, %eax
	orb	$1, %al
	movl	%eax, %cr0
	ljmpl	$0x08, $protected

	.code32
protected:
	movl	$0x10, %eax
	movl	%eax, %ds
	movl	%eax, %es
	movl	%eax, %fs
	movl	%eax, %gs
	movl	%eax, %ss
	movl	$0x7000, %esp
	movl	$START_INFO, %ebx
	movl	$ENTRY, %eax
	jmp	*%eax

	.balign	8
gdt:
	.quad	0
	.quad	0x00cf9b000000ffff	/* 0x08: code, 4 GiB */
	.quad	0x00cf93000000ffff	/* 0x10: data, 4 GiB */
gdt_pointer:
	.word	. - gdt - 1
	.long	gdt

	.org	510
	.word	0xaa55
