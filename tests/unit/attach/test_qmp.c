/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU's monitor: a QMP client with invalid and hostile servers, and the parsers of QEMU's
 * output. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/libvirt_domain.h"
#include "vmm/attach/monitor.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/qmp_connection.h"
#include "vmm/attach/qmp_text.h"

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n"
#define DONE     "\"return\": {}"

/* A server in a process of its own, for one client. */
struct server {
	char directory[64], path[96];
	int listener;
	pid_t pid;
};

static void serve(struct server *server, void (*talk)(int client))
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	*server = (struct server){ .directory = "/tmp/kvmscope-qmp-XXXXXX" };
	REQUIRE(mkdtemp(server->directory) != NULL);
	snprintf(server->path, sizeof(server->path), "%s/qmp", server->directory);
	strcpy(address.sun_path, server->path);
	server->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(!bind(server->listener, (struct sockaddr *)&address, sizeof(address)));
	REQUIRE(!listen(server->listener, 1));
	fflush(NULL);
	server->pid = fork();
	if (!server->pid) {
		signal(SIGPIPE, SIG_IGN);
		alarm(250);
		talk(accept4(server->listener, NULL, NULL, SOCK_CLOEXEC));
		_exit(0);
	}
}

static void end(struct server *server)
{
	kill(server->pid, SIGKILL);
	waitpid(server->pid, NULL, 0);
	close(server->listener);
	unlink(server->path);
	rmdir(server->directory);
}

static void say(int client, const char *text)
{
	if (write(client, text, strlen(text)) < 0)
		_exit(1);
}

static json_int_t heard; /* the id of the last command that the server received */

/* Reads to the end of a command: ours are one line without a newline. */
static void hear(int client)
{
	char text[4096];
	ssize_t size = read(client, text, sizeof(text));
	json_t *command = json_loadb(text, size > 0 ? (size_t)size : 0, 0, NULL);

	if (!command)
		_exit(1);
	heard = json_integer_value(json_object_get(command, "id"));
	json_decref(command);
}

/* Begins an answer to the command received AGO commands ago. */
static void say_id(int client, int ago)
{
	if (dprintf(client, "{\"id\": %lld, ", (long long)(heard - ago)) < 0)
		_exit(1);
}

static void answer_with(int client, const char *members)
{
	say_id(client, 0);
	say(client, members);
	say(client, "}\r\n");
}

static void say_nothing(int client)
{
	pause();
}

static void be_no_monitor(int client)
{
	say(client, "HTTP/1.0 400 Bad Request\r\n");
	pause();
}

static void greet_with_no_greeting(int client)
{
	say(client, "{\"hello\": {}}\r\n");
	pause();
}

/* As if all answers were for another client. */
static void answer_without_end(int client)
{
	for (;;)
		say(client, "{\"id\": 1, " DONE "}\r\n{" DONE "}\r\n");
}

static void greet_with_no_json(int client)
{
	say(client, "{\"QMP\": nothing}\r\n");
	pause();
}

static void close_in_the_middle(int client)
{
	say(client, "{\"QMP\": {\"ver");
}

static void nest_without_end(int client)
{
	say(client, "{\"QMP\": ");
	for (int i = 0; i < 1000; i++)
		say(client, "[");
	pause();
}

static void talk_without_end(int client)
{
	static char text[65536];

	memset(text, 'a', sizeof(text) - 1);
	say(client, "{\"QMP\": \"");
	for (;;)
		say(client, text);
}

static void check_open(void (*talk)(int client), int error)
{
	struct server server;
	struct qmp *qmp = NULL;
	pid_t peer;

	serve(&server, talk);
	CHECK_EQUAL(qmp_open(&qmp, server.path, -1, &peer), error);
	qmp_close(error ? NULL : qmp);
	end(&server);
}

TEST(qmp, other_servers_are_refused)
{
	check_open(say_nothing, -EBUSY);
	check_open(be_no_monitor, -EPROTO);
	check_open(greet_with_no_greeting, -EPROTO);
	check_open(greet_with_no_json, -EPROTO);
	check_open(answer_without_end, -EBUSY);
	check_open(close_in_the_middle, -ECONNRESET);
	check_open(nest_without_end, -EPROTO);
	check_open(talk_without_end, -EPROTO);
}

TEST(qmp, no_socket_is_an_error)
{
	struct qmp *qmp;
	pid_t peer;

	CHECK_EQUAL(qmp_open(&qmp, "/nonexistent/qmp", -1, &peer), -ENOENT);
	CHECK_EQUAL(qmp_open(&qmp, "/dev/null", -1, &peer), -ECONNREFUSED);
}

/* Sends a leftover of the previous client first, and again later. */
static void answer(int client)
{
	say(client, "{\"id\": 7, \"return\": \"another's\"}\r\n{\"error\": {}}\r\n" GREETING);
	hear(client);
	answer_with(client, DONE);
	hear(client);
	say_id(client, 5);
	say(client, "\"return\": \"another's\"}\r\n{\"return\": \"another's\"}\r\n");
	say(client, "{\"timestamp\": {}, \"event\": \"RESET\"}\r\n{\"event\": \"STOP\"}\r\n");
	say_id(client, 0);
	say(client, "\n  \"return\": ");
	usleep(10000);
	say(client, "{\n    \"text\": \"} \\\" {\"\n  }\n}\n");
	hear(client);
	answer_with(
		client,
		"\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no \\u001b[31m such\"}");
	hear(client);
	answer_with(client, "\"error\": {\"class\": \"GenericError\"}");
	hear(client);
	answer_with(client, "\"neither\": 1");
	pause();
}

TEST(qmp, answers_are_found_between_events_and_other_answers)
{
	struct qmp *qmp;
	json_t *result = NULL;
	pid_t peer = 0;

	FIXTURE(struct server, server, serve, end, answer);
	REQUIRE_EQUAL(qmp_open(&qmp, server.path, -1, &peer), 0);
	CHECK_EQUAL(peer, getpid()); /* which created the server */
	CHECK_EQUAL(qmp_execute(qmp, "query-status", json_pack("{s:i}", "x", 1), &result), 0);
	CHECK_STRING(json_string_value(json_object_get(result, "text")), "} \" {");
	json_decref(result);
	CHECK_EQUAL(qmp_execute(qmp, "other", NULL, &result), -ENOTSUP);
	CHECK(strstr(error_message(), "no ?[31m such"));
	CHECK_EQUAL(qmp_execute(qmp, "other", NULL, &result), -EREMOTEIO);
	CHECK_EQUAL(qmp_execute(qmp, "other", NULL, &result), -EPROTO);
	qmp_close(qmp);
}

static void answer_no_more(int client)
{
	say(client, GREETING);
	hear(client);
	answer_with(client, DONE);
	pause();
}

static void answer_others_without_end(int client)
{
	say(client, GREETING);
	hear(client);
	answer_with(client, DONE);
	answer_without_end(client);
}

static void check_cancel(void (*talk)(int client))
{
	const uint64_t one = 1;
	struct server server;
	struct qmp *qmp;
	json_t *result;
	pid_t peer;
	int cancel = eventfd(0, EFD_CLOEXEC);

	serve(&server, talk);
	REQUIRE_EQUAL(qmp_open(&qmp, server.path, cancel, &peer), 0);
	CHECK_EQUAL(write(cancel, &one, sizeof(one)), sizeof(one));
	CHECK_EQUAL(qmp_execute(qmp, "query-status", NULL, &result), -ECANCELED);
	qmp_close(qmp);
	end(&server);
	close(cancel);
}

TEST(qmp, a_wait_can_be_canceled)
{
	check_cancel(answer_no_more);
	check_cancel(answer_others_without_end);
}

/* Output of QEMU 7.2, without unused parts. */
#define LONG_MODE                                                                                  \
	"RAX=ffffffff9f2c8ae8 RBX=0000000000000002 RCX=0000000000000003 RDX=0000000000000004\r\n"  \
	"RSI=0000000000000005 RDI=0000000000000006 RBP=ffffd37040053bce RSP=ffffd37040053b80\r\n"  \
	"R8 =0000000000000008 R9 =0000000000000009 R10=000000000000000a R11=000000000000000b\r\n"  \
	"R12=000000000000000c R13=000000000000000d R14=000000000000000e R15=000000000000000f\r\n"  \
	"RIP=ffffffff9e161d4f RFL=00000206 [-----P-] CPL=0 II=0 A20=1 SMM=0 HLT=0\r\n"             \
	"ES =0000 0000000000000000 00000000 00000000\r\n"                                          \
	"CS =0010 0000000000000000 ffffffff 00af9b00 DPL=0 CS64 [-RA]\r\n"                         \
	"GS =0000 ffff8cd70f800000 00000000 00000000\r\n"                                          \
	"GDT=     fffffe0000001000 0000007f\r\n"                                                   \
	"IDT=     fffffe0000000000 00000fff\r\n"                                                   \
	"CR0=80050033 CR2=ffff8cd70a001000 CR3=0000000009210000 CR4=000006b0\r\n"                  \
	"EFER=0000000000000d01\r\n"

#define REAL_MODE                                                                                  \
	"EAX=00000000 EBX=00000000 ECX=00000000 EDX=00000663\r\n"                                  \
	"ESI=00000000 EDI=00000000 EBP=00000000 ESP=00000000\r\n"                                  \
	"EIP=0000fff0 EFL=00000002 [-------] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\n"                     \
	"CS =f000 ffff0000 0000ffff 00009b00\r\nGS =0000 00000000 0000ffff 00009300\r\n"           \
	"GDT=     00000000 0000ffff\r\nIDT=     00000000 0000ffff\r\n"                             \
	"CR0=60000010 CR2=00000000 CR3=00000000 CR4=00000000\r\nEFER=0000000000000000\r\n"

TEST(qmp, registers_of_all_vcpus_are_read)
{
	const char *text = "\r\nCPU#0\r\n" LONG_MODE "\r\nCPU#7\r\n" REAL_MODE;
	struct qmp_registers found;

	REQUIRE(qmp_parse_registers(&text, &found));
	CHECK_EQUAL(found.id, 0);
	CHECK_EQUAL(found.registers.rip, 0xffffffff9e161d4f);
	CHECK_EQUAL(found.registers.rsp, 0xffffd37040053b80);
	CHECK_EQUAL(found.registers.r8, 8);
	CHECK_EQUAL(found.registers.r15, 15);
	CHECK_EQUAL(found.registers.rflags, 0x206);
	CHECK_EQUAL(found.registers.gs_base, 0xffff8cd70f800000);
	CHECK_EQUAL(found.registers.idt_base, 0xfffffe0000000000);
	CHECK_EQUAL(found.registers.idt_limit, 0xfff);
	CHECK_EQUAL(found.registers.gdt_base, 0xfffffe0000001000);
	CHECK_EQUAL(found.registers.paging.cr3, 0x9210000);
	CHECK_EQUAL(found.registers.paging.efer, 0xd01);
	CHECK_EQUAL(found.registers.cpl, 0);
	CHECK(found.registers.long_mode && !found.halted && !found.smm);
	REQUIRE(qmp_parse_registers(&text, &found));
	CHECK_EQUAL(found.id, 7);
	CHECK_EQUAL(found.registers.rip, 0xfffffff0);
	CHECK(!found.registers.long_mode && found.halted);
	CHECK(!qmp_parse_registers(&text, &found));
}

/* Each line is needed: without any one of them, or truncated anywhere, nothing is accepted. */
TEST(qmp, incomplete_registers_are_refused)
{
	static const char whole[] = "\nCPU#0\r\n" LONG_MODE;
	struct qmp_registers found;
	char text[sizeof(whole)];

	for (size_t size = 0; size < sizeof(whole) - 30; size++) {
		const char *at = text;

		memcpy(text, whole, size);
		text[size] = '\0';
		if (qmp_parse_registers(&at, &found))
			FAIL_TEST("%zu of %zu bytes are enough", size, sizeof(whole));
	}
	for (const char *line = whole + 8; (line = strchr(line, '\n')) && line[1]; line++) {
		const char *next = strchr(line + 1, '\n'), *at = text;

		if (line[1] == 'E' && line[2] == 'S') /* unused */
			continue;
		snprintf(text, sizeof(text), "%.*s%s", (int)(line - whole), whole, next);
		if (qmp_parse_registers(&at, &found))
			FAIL_TEST("without '%.20s' it is enough", line + 1);
	}
}

static int parse_vcpus(const char *text)
{
	json_t *result = json_loads(text, 0, NULL);
	struct qmp_vcpu vcpus[3];
	int count = qmp_parse_vcpus(result, vcpus, 3);

	json_decref(result);
	return count;
}

TEST(qmp, vcpus_and_their_threads)
{
	CHECK_EQUAL(parse_vcpus("[{\"cpu-index\": 0, \"thread-id\": 7, \"target\": \"x86_64\"},"
				"{\"cpu-index\": 1, \"thread-id\": 7, \"target\": \"x86_64\"}]"),
		    2);
	CHECK_EQUAL(parse_vcpus("[]"), 0);
	CHECK_EQUAL(parse_vcpus("{}"), -EPROTO);
	CHECK_EQUAL(parse_vcpus("[{\"cpu-index\": 0, \"thread-id\": 7, \"target\": \"aarch64\"}]"),
		    -ENOTSUP);
	CHECK_EQUAL(parse_vcpus("[{\"cpu-index\": 0, \"thread-id\": 0}]"), -EPROTO);
	CHECK_EQUAL(parse_vcpus("[{\"cpu-index\": 1024, \"thread-id\": 7}]"), -EPROTO);
	CHECK_EQUAL(parse_vcpus("[{\"cpu-index\": -1, \"thread-id\": 7}]"), -EPROTO);
	CHECK_EQUAL(parse_vcpus("[{\"cpu-index\": 0, \"thread-id\": 4294967303}]"), -EPROTO);
	CHECK_EQUAL(
		parse_vcpus(
			"[{\"cpu-index\": 0, \"thread-id\": 7}, {\"cpu-index\": 0, \"thread-id\": 8}]"),
		-EPROTO);
	CHECK_EQUAL(parse_vcpus("[1, 2]"), -EPROTO);
}

#define SOCKET_OF(line, path, size) monitor_parse_command_line(line, sizeof(line), path, size)

TEST(qmp, the_socket_of_a_command_line)
{
	char path[64] = "";

	CHECK(SOCKET_OF("qemu\0-qmp\0unix:/run/a,,b,server=on,wait=off", path, sizeof(path)));
	CHECK_STRING(path, "/run/a,b");
	CHECK(SOCKET_OF("qemu\0-qmp-pretty\0unix:rel/server,server,nowait\0-m\0"
			"64",
			path, sizeof(path)));
	CHECK_STRING(path, "rel/server");
	CHECK(SOCKET_OF(
		"qemu\0-chardev\0socket,id=x,path=/x,server=on\0-chardev\0"
		"socket,path=/server/m,id=m,server=on,wait=off\0-mon\0chardev=m,mode=control",
		path, sizeof(path)));
	CHECK_STRING(path, "/server/m");
	CHECK(!SOCKET_OF(
		"qemu\0-mon\0chardev=m,mode=readline\0-chardev\0socket,id=m,path=/m,server=on",
		path, sizeof(path)));
	CHECK(!SOCKET_OF(
		"qemu\0-chardev\0socket,id=m,fd=19,server=on\0-mon\0chardev=m,mode=control", path,
		sizeof(path))); /* libvirt's */
	CHECK(!SOCKET_OF("qemu\0-qmp\0unix:/server", path, sizeof(path)));
	CHECK(!SOCKET_OF("qemu\0-qmp\0unix:/a,server=off", path, sizeof(path)));
	CHECK(!SOCKET_OF("qemu\0-qmp\0tcp:localhost:4444,server", path, sizeof(path)));
	CHECK(!SOCKET_OF("qemu\0-qmp", path, sizeof(path)));
	CHECK(!SOCKET_OF("qemu\0-qmp\0unix:/longer/than/there/is/room/for,server", path, 8));
	CHECK(!monitor_parse_command_line("-qmp", 4, path, sizeof(path)));
}

#define UUID                  "4dea22b3-1d52-d8f3-2516-782e98ab3fa0"
#define IS_DOMAIN(line, name) domain_parse_command_line(line, sizeof(line), name, UUID)

TEST(qmp, the_command_line_of_a_domain)
{
	CHECK(IS_DOMAIN("qemu\0-name\0guest=one,debug-threads=on\0-S\0-uuid\0" UUID, "one"));
	CHECK(IS_DOMAIN("qemu\0-name\0guest=o,,ne\0-uuid\0" UUID, "o,ne"));
	CHECK(!IS_DOMAIN("qemu\0-name\0guest=one,,two\0-uuid\0" UUID, "one"));
	CHECK(!IS_DOMAIN("qemu\0-name\0guest=one\0-uuid\0" UUID, "on"));
	CHECK(!IS_DOMAIN("qemu\0-name\0guest=on\0-uuid\0" UUID, "one"));
	CHECK(!IS_DOMAIN("qemu\0-name\0guest=one\0-uuid\0"
			 "4dea22b3-1d52-d8f3-2516-782e98ab3fa1",
			 "one"));
	CHECK(!IS_DOMAIN("qemu\0-name\0guest=one\0-uuid", "one"));
	CHECK(!IS_DOMAIN("qemu\0" UUID "\0guest=one", "one"));
}

TEST(qmp, the_inner_tid_of_a_thread)
{
	CHECK_EQUAL(proc_parse_inner_tid("Name:\tqemu\nNSpid:\t4711\nNSpgid:\t1\n"), 4711);
	CHECK_EQUAL(proc_parse_inner_tid("Name:\tqemu\nNSpid:\t4711\t22\t3\nNSpgid:\t1\n"), 3);
	CHECK_EQUAL(proc_parse_inner_tid("Name:\tNSpid:\t5\n"), 0);
	CHECK_EQUAL(proc_parse_inner_tid("Name:\tqemu\nNSpid:\t4711"), 0);
	CHECK_EQUAL(proc_parse_inner_tid("Name:\tqemu\nNSpid:\tx\n"), 0);
}

/* Output of QEMU 7.2, shortened. */
static const char memory[] =
	"FlatView #1\r\n AS \"I/O\", root: io\r\n Root memory region: io\r\n"
	"  0000000000000000-0000000000000007 (prio 0, ram): dma-chan\r\n\r\n"
	"FlatView #3\r\n AS \"memory\", root: system\r\n AS \"cpu-memory-0\", root: system\r\n"
	" Root memory region: system\r\n"
	"  0000000000000000-00000000000c2fff (prio 0, ram): pc.ram\r\n"
	"  00000000000c3000-00000000000e7fff (prio 0, rom): pc.ram @00000000000c3000\r\n"
	"  0000000000100000-000000000fffffff (prio 0, ram): pc.ram @0000000000100000\r\n"
	"  00000000b0000000-00000000bfffffff (prio 0, i/o): pcie-mmcfg-mmio\r\n"
	"  00000000fffc0000-00000000ffffffff (prio 0, romd): pc.bios\r\n\r\n"
	"FlatView #4\r\n AS \"memory\", root: other\r\n"
	"  0000000000000000-00000000000c2fff (prio 0, ram): pc.ram\r\n";

TEST(qmp, the_guest_s_memory)
{
	struct vmm_slot slots[8];
	uint64_t hva = 0;

	REQUIRE_EQUAL(qmp_parse_memory(memory, slots, 8), 3);
	CHECK_EQUAL(slots[0].gpa, 0);
	CHECK_EQUAL(slots[0].size, 0xc3000);
	CHECK_EQUAL(slots[1].gpa, 0xc3000);
	CHECK_EQUAL(slots[2].gpa, 0x100000);
	CHECK_EQUAL(slots[2].size, 0xff00000);
	CHECK_EQUAL(qmp_parse_memory(memory, slots, 2), 0);
	CHECK_EQUAL(qmp_parse_memory("", slots, 8), 0);
	CHECK_EQUAL(
		qmp_parse_memory(
			" AS \"memory\", root: x\n  0-fff (prio 0, ram): a\n  800-8ff (prio 0, ram): b\n",
			slots, 8),
		0);
	CHECK_EQUAL(qmp_parse_memory(" AS \"memory\", root: x\n  5-4 (prio 0, ram): a\n"
				     "  0-ffffffffffffffff (prio 0, ram): b\n",
				     slots, 8),
		    0);
	CHECK(qmp_parse_hva("Host virtual address for 0x100000 (pc.ram) is 0x7f533ff00000\r\n",
			    &hva));
	CHECK_EQUAL(hva, 0x7f533ff00000);
	CHECK(!qmp_parse_hva("No memory is mapped at address 0xb0000000\r\n", &hva));
	CHECK(!qmp_parse_hva("Host virtual address for 0x0 (a) is 0xffffffffffffffff\r\n", &hva));
}
