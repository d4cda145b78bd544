/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the test guests, all of which end in guest_main(command line) in
 * long mode with our own GDT and page tables: 32-bit by multiboot and PVH,
 * 64-bit by Linux's protocol; and the other CPUs' way from real mode.
 */
#define MULTIBOOT_HEADER_MAGIC 0x1badb002
#define MULTIBOOT_FLAGS 3
#define MULTIBOOT_LOADER_MAGIC 0x2badb002
#define MULTIBOOT_COMMAND_LINE 16
#define PVH_COMMAND_LINE 24
#define ZERO_PAGE_COMMAND_LINE 0x228

#define CODE_64 0x10
#define DATA 0x18

#define PRESENT_WRITABLE 3
#define LARGE_PAGE 0x83
#define LARGE_USER_PAGE 0x87
#define TABLE_USER 7

#define CR0_PE_NE_ET 0x31
#define CR0_PG (1 << 31)
#define CR4_PAE_FXSR 0x620
#define MSR_EFER 0xc0000080
#define EFER_LME 0x100

	.section .header, "a"
	.balign 4
	.long MULTIBOOT_HEADER_MAGIC, MULTIBOOT_FLAGS, -(MULTIBOOT_HEADER_MAGIC + MULTIBOOT_FLAGS)

	/* XEN_ELFNOTE_PHYS32_ENTRY */
	.section .note.Xen, "a", @note
	.balign 4
	.long 4, 4, 18
	.asciz "Xen"
	.long start32

	.text
	.code32
	.globl start32
start32:
	cmpl $MULTIBOOT_LOADER_MAGIC, %eax
	jne 1f
	movl MULTIBOOT_COMMAND_LINE(%ebx), %esi
	jmp 2f
1:	movl PVH_COMMAND_LINE(%ebx), %esi
2:	movl $stack_top, %esp
	call build_page_tables
	movl $gdt_pointer, %eax
	lgdt (%eax)
	call enable_long_mode
	ljmp $CODE_64, $in_long_mode

/* One to one, 4 GiB in pages of 2 MiB; those of the user section are open to CPL3. */
build_page_tables:
	movl $page_pointers + TABLE_USER, page_root
	movl $page_directories + TABLE_USER, page_pointers
	movl $page_directories + 0x1000 + PRESENT_WRITABLE, page_pointers + 8
	movl $page_directories + 0x2000 + PRESENT_WRITABLE, page_pointers + 16
	movl $page_directories + 0x3000 + PRESENT_WRITABLE, page_pointers + 24
	movl $page_directories, %edi
	movl $LARGE_PAGE, %eax
	movl $2048, %ecx
1:	movl %eax, (%edi)
	addl $0x200000, %eax
	addl $8, %edi
	decl %ecx
	jnz 1b
	movl $user_start, %eax
	shrl $21, %eax
	orl $LARGE_USER_PAGE, page_directories(, %eax, 8)
	ret

/* Paging on: 32-bit code goes on in compatibility mode until a far jump. */
enable_long_mode:
	movl $CR4_PAE_FXSR, %eax
	movl %eax, %cr4
	movl $page_root, %eax
	movl %eax, %cr3
	movl $MSR_EFER, %ecx
	movl $EFER_LME, %eax
	xorl %edx, %edx
	wrmsr
	movl $CR0_PE_NE_ET + CR0_PG, %eax
	movl %eax, %cr0
	ret

	.code64
	.globl start64
start64:
	movl ZERO_PAGE_COMMAND_LINE(%rsi), %esi
	movl $stack_top, %esp
	/* The tables are built by the 32-bit code, whose encodings are others: here once more. */
	movq $page_pointers + TABLE_USER, page_root
	movq $page_directories + TABLE_USER, page_pointers
	movq $page_directories + 0x1000 + PRESENT_WRITABLE, page_pointers + 8
	movq $page_directories + 0x2000 + PRESENT_WRITABLE, page_pointers + 16
	movq $page_directories + 0x3000 + PRESENT_WRITABLE, page_pointers + 24
	movl $page_directories, %edi
	movl $LARGE_PAGE, %eax
	movl $2048, %ecx
1:	movq %rax, (%rdi)
	addq $0x200000, %rax
	addq $8, %rdi
	decl %ecx
	jnz 1b
	movl $user_start, %eax
	shrl $21, %eax
	orl $LARGE_USER_PAGE, page_directories(, %rax, 8)
	movl $page_root, %eax
	movq %rax, %cr3
	movl $gdt_pointer, %eax
	lgdt (%rax)
	pushq $CODE_64
	pushq $in_long_mode
	lretq

in_long_mode:
	movl $DATA, %eax
	movl %eax, %ds
	movl %eax, %es
	movl %eax, %ss
	xorl %ebp, %ebp
	movl %esi, %edi
	call guest_main
1:	hlt
	jmp 1b

/*
 * The other CPUs start here by SIPI, copied to the page other_cpu_page. Each
 * takes a stack of its own and calls other_cpu_main().
 */
	.globl other_cpu_start, other_cpu_end
	.set other_cpu_page, 0x2000
	.code16
other_cpu_start:
	cli
	xorw %ax, %ax
	movw %ax, %ds
	lgdtl other_cpu_page + (other_cpu_gdt_pointer - other_cpu_start)
	movl $CR0_PE_NE_ET, %eax
	movl %eax, %cr0
	ljmpl $0x08, $other_cpu_32
other_cpu_gdt_pointer:
	.word gdt_end - gdt - 1
	.long gdt
other_cpu_end:
	.code32
other_cpu_32:
	movl $DATA, %eax
	movl %eax, %ds
	movl %eax, %ss
	/* No stack yet to return by. */
	movl $CR4_PAE_FXSR, %eax
	movl %eax, %cr4
	movl $page_root, %eax
	movl %eax, %cr3
	movl $MSR_EFER, %ecx
	movl $EFER_LME, %eax
	xorl %edx, %edx
	wrmsr
	movl $CR0_PE_NE_ET + CR0_PG, %eax
	movl %eax, %cr0
	ljmp $CODE_64, $other_cpu_64
	.code64
other_cpu_64:
	movl $1, %eax
	lock xaddl %eax, other_cpu_count
	shll $12, %eax
	leal other_cpu_stacks + 0x1000(%rax), %esp
	xorl %ebp, %ebp
	call other_cpu_main
1:	hlt
	jmp 1b

	.altmacro
/* Traps. Each stub pushes an error code where the CPU does not, and its vector. */
	.macro trap vector
	.balign 16
	.if \vector != 8 && \vector != 10 && \vector != 11 && \vector != 12 && \vector != 13 && \vector != 14 && \vector != 17
	pushq $0
	.endif
	pushq $\vector
	jmp trap_common
	.endm

	.balign 16
	.globl trap_stubs
trap_stubs:
	.set vector, 0
	.rept 128
	trap %vector
	.set vector, vector + 1
	.endr

trap_common:
	pushq %rax
	pushq %rcx
	pushq %rdx
	pushq %rbx
	pushq %rbp
	pushq %rsi
	pushq %rdi
	pushq %r8
	pushq %r9
	pushq %r10
	pushq %r11
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, %rdi
	call trap_dispatch
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %r11
	popq %r10
	popq %r9
	popq %r8
	popq %rdi
	popq %rsi
	popq %rbp
	popq %rbx
	popq %rdx
	popq %rcx
	popq %rax
	addq $16, %rsp
	iretq

/* void user_enter(void (*function)(void), uint64_t stack, uint64_t rflags): see guest.h */
	.globl user_enter
user_enter:
	pushq %rbx
	pushq %rbp
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, user_return_stack
	pushq $0x23
	pushq %rsi
	pushq %rdx
	pushq $0x2b
	pushq %rdi
	xorl %ebp, %ebp
	iretq

/* Leaves the trap for where user_enter() was called. */
	.globl user_leave
user_leave:
	movq user_return_stack, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbp
	popq %rbx
	ret

	.data
	.balign 16
	.globl gdt
gdt:
	.quad 0
	.quad 0x00cf9b000000ffff	/* 0x08 32-bit code, for the way up */
	.quad 0x00af9b000000ffff	/* 0x10 64-bit code */
	.quad 0x00cf93000000ffff	/* 0x18 data */
	.quad 0x00cff3000000ffff	/* 0x20 user data */
	.quad 0x00affb000000ffff	/* 0x28 user code */
	.quad 0, 0			/* 0x30 TSS, filled in by traps.c */
gdt_end:
gdt_pointer:
	.word gdt_end - gdt - 1
	.quad gdt

	.globl other_cpu_count
other_cpu_count:
	.long 0

	.bss
	.balign 4096
	.globl page_root, page_pointers, page_directories
page_root:
	.skip 4096
page_pointers:
	.skip 4096
page_directories:
	.skip 4 * 4096
	.skip 32768
stack_top:
	.globl other_cpu_stacks
other_cpu_stacks:
	.skip 64 * 4096
	.balign 8
user_return_stack:
	.quad 0
	.section .note.GNU-stack, "", @progbits
