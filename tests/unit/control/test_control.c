/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket against its clients, well-behaved and hostile ones. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/control/control_client.h"
#include "vmm/control/control_protocol.h"
#include "vmm/control/control_server.h"
#include "vmm/control/run_directory.h"

#define WAIT_MS 20000

struct fixture {
	char directory[64];
	char path[128];
	struct control_socket socket;
	struct control *control;
	int added;
};

static int do_add(void *context, json_t *arguments, json_t *result)
{
	struct fixture *fixture = context;
	int number;

	if (json_unpack_ex(arguments, NULL, 0, "{s:i !}", "number", &number))
		return error_set(-EINVAL, "add takes a \"number\"");
	fixture->added += number;
	json_object_set_new(result, "sum", json_integer(fixture->added));
	return 0;
}

static int do_fail(void *context, json_t *arguments, json_t *result)
{
	return error_set(-EBUSY, "not now");
}

/* An answer larger than a socket's buffer. */
static int do_long(void *context, json_t *arguments, json_t *result)
{
	json_t *list = json_array();

	for (int i = 0; i < 60000; i++)
		json_array_append_new(list, json_integer(1000000 + i));
	json_object_set_new(result, "list", list);
	return 0;
}

static bool set_up(struct fixture *fixture)
{
	memset(fixture, 0, sizeof(*fixture));
	strcpy(fixture->directory, "/tmp/kvmscope-control-XXXXXX");
	if (!mkdtemp(fixture->directory))
		return false;
	snprintf(fixture->path, sizeof(fixture->path), "%s/socket", fixture->directory);
	if (control_socket_open_at(&fixture->socket, fixture->path) ||
	    control_create(&fixture->control))
		return false;
	control_add(fixture->control, "add", do_add, fixture);
	control_add(fixture->control, "fail", do_fail, fixture);
	control_add(fixture->control, "long", do_long, fixture);
	return !control_start(fixture->control, fixture->socket.fd);
}

static void tear_down(struct fixture *fixture)
{
	control_destroy(fixture->control);
	control_socket_close(&fixture->socket);
	CHECK_EQUAL(rmdir(fixture->directory), 0); /* it no longer contains the socket */
}

static void send_text(int fd, const char *text)
{
	size_t size = strlen(text);

	CHECK_EQUAL(send(fd, text, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* Reads up to the newline; "" if the connection was closed before. */
static void receive_line(int fd, char *line, size_t size)
{
	size_t filled = 0;

	while (filled + 1 < size && recv(fd, line + filled, 1, 0) == 1 && line[filled++] != '\n')
		;
	line[filled] = '\0';
}

static void check_answer(int fd, const char *request, const char *answer)
{
	char line[4096];

	send_text(fd, request);
	receive_line(fd, line, sizeof(line));
	if (strcmp(line, answer))
		FAIL_TEST("the answer to %s is %s and not %s", request, line, answer);
}

TEST(control, answers_a_line_with_a_line)
{
	struct fixture fixture;
	int fd;

	REQUIRE(set_up(&fixture));
	fd = control_connect(fixture.path);
	REQUIRE(fd >= 0);
	check_answer(fd, "{\"command\":\"add\",\"arguments\":{\"number\":4}}\n",
		     "{\"version\":1,\"result\":{\"sum\":4}}\n");
	check_answer(
		fd,
		"{\"version\": 1, \"id\": \"x\", \"command\": \"add\", \"arguments\": {\"number\": 5}}\n",
		"{\"version\":1,\"id\":\"x\",\"result\":{\"sum\":9}}\n");
	check_answer(
		fd, "{\"command\":\"fail\",\"id\":7}\n",
		"{\"version\":1,\"id\":7,\"error\":{\"code\":\"EBUSY\",\"message\":\"not now\"}}\n");
	check_answer(
		fd, "{\"command\":\"commands\"}\n",
		"{\"version\":1,\"result\":{\"commands\":[\"commands\",\"add\",\"fail\",\"long\"]}}\n");
	close(fd);
	tear_down(&fixture);
}

static void check_refused(int fd, const char *request, const char *code)
{
	char line[4096], wanted[64];

	send_text(fd, request);
	receive_line(fd, line, sizeof(line));
	snprintf(wanted, sizeof(wanted), "\"error\":{\"code\":\"%s\"", code);
	if (!strstr(line, wanted))
		FAIL_TEST("the answer to %s is %s and not %s", request, line, code);
}

TEST(control, invalid_requests_are_refused_and_the_next_one_served)
{
	static const char *const bad[] = {
		"\n",
		"x\n",
		"{\n",
		"[]\n",
		"7\n",
		"{}\n",
		"{} {}\n",
		"{\"command\":3}\n",
		"{\"command\":\"add\",\"command\":\"fail\"}\n",
		"{\"command\":\"add\",\"arguments\":[1]}\n",
		"{\"command\":\"add\",\"arguments\":{\"number\":\"4\"}}\n",
		"{\"command\":\"add\",\"arguments\":{\"number\":4,\"more\":1}}\n",
		"{\"command\":\"add\",\"arguments\":{\"number\":99999999999999999999}}\n",
		"{\"command\":\"add\",\"argument\":{\"number\":4}}\n",
		"{\"command\":\"commands\",\"arguments\":{\"number\":4}}\n",
		"{\"command\":\"add\",\"id\":{},\"arguments\":{\"number\":4}}\n",
		"{\"version\":\"1\",\"command\":\"add\",\"arguments\":{\"number\":4}}\n",
		"{\"command\":\"\xff\xfe\"}\n",
		"{\"command\":\"a\\u0000b\"}\n",
	};
	struct fixture fixture;
	int fd;

	REQUIRE(set_up(&fixture));
	fd = control_connect(fixture.path);
	REQUIRE(fd >= 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_refused(fd, bad[i], "EINVAL");
	check_refused(fd, "{\"version\":2,\"command\":\"add\",\"arguments\":{\"number\":4}}\n",
		      "EPROTONOSUPPORT");
	check_refused(fd, "{\"command\":\"none\"}\n", "ENOENT");
	CHECK_EQUAL(fixture.added, 0);
	check_answer(fd, "{\"command\":\"add\",\"arguments\":{\"number\":1}}\n",
		     "{\"version\":1,\"result\":{\"sum\":1}}\n");
	close(fd);
	tear_down(&fixture);
}

TEST(control, several_requests_at_once_are_answered_in_order)
{
	struct fixture fixture;
	char line[256];
	int fd;

	REQUIRE(set_up(&fixture));
	fd = control_connect(fixture.path);
	REQUIRE(fd >= 0);
	for (int i = 0; i < 40; i++)
		send_text(fd, "{\"command\":\"add\",\"arguments\":{\"number\":1}}\n");
	shutdown(fd, SHUT_WR); /* earlier requests are still answered */
	for (int i = 1; i <= 40; i++) {
		char wanted[64];

		snprintf(wanted, sizeof(wanted), "{\"version\":1,\"result\":{\"sum\":%d}}\n", i);
		receive_line(fd, line, sizeof(line));
		CHECK_STRING(line, wanted);
	}
	receive_line(fd, line, sizeof(line));
	CHECK_STRING(line, "");
	close(fd);
	tear_down(&fixture);
}

TEST(control, a_request_may_come_byte_by_byte)
{
	static const char request[] = "{\"command\":\"add\",\"arguments\":{\"number\":3}}\n";
	struct fixture fixture;
	char line[256];
	int fd;

	REQUIRE(set_up(&fixture));
	fd = control_connect(fixture.path);
	REQUIRE(fd >= 0);
	for (const char *at = request; *at; at++)
		CHECK_EQUAL(send(fd, at, 1, 0), 1);
	receive_line(fd, line, sizeof(line));
	CHECK_STRING(line, "{\"version\":1,\"result\":{\"sum\":3}}\n");
	close(fd);
	tear_down(&fixture);
}

TEST(control, a_line_without_end_is_refused)
{
	struct fixture fixture;
	char endless[CONTROL_REQUEST_MAX + 1], line[256];
	int fd;

	REQUIRE(set_up(&fixture));
	fd = control_connect(fixture.path);
	REQUIRE(fd >= 0);
	memset(endless, '[', sizeof(endless));
	endless[sizeof(endless) - 1] = '\0';
	send_text(fd, endless);
	receive_line(fd, line, sizeof(line));
	CHECK(strstr(line, "\"code\":\"EMSGSIZE\""));
	CHECK(recv(fd, line, 1, 0) <= 0); /* and disconnected */
	close(fd);
	/* The longest line is parsed: it is nested too deeply. */
	fd = control_connect(fixture.path);
	endless[CONTROL_REQUEST_MAX - 1] = '\n';
	check_refused(fd, endless, "EINVAL");
	close(fd);
	tear_down(&fixture);
}

static void check_alive(const struct fixture *fixture)
{
	int fd = control_connect(fixture->path);
	json_t *result = NULL;

	CHECK_EQUAL(control_call(fd, "commands", NULL, &result), 0);
	json_decref(result);
	close(fd);
}

TEST(control, a_client_that_does_not_read_delays_no_other)
{
	struct fixture fixture;
	struct pollfd end;
	int fd;

	REQUIRE(set_up(&fixture));
	fd = control_connect(fixture.path);
	REQUIRE(fd >= 0);
	/* Requests more answers than all buffers hold, until our requests do not fit either. */
	while (send(fd, "{\"command\":\"long\"}\n", 19, MSG_DONTWAIT) > 0)
		;
	check_alive(&fixture);
	check_alive(&fixture);
	/* The run can still end. */
	control_destroy(fixture.control);
	fixture.control = NULL;
	end = (struct pollfd){ .fd = fd, .events = POLLIN | POLLHUP };
	CHECK_EQUAL(poll(&end, 1, WAIT_MS), 1);
	close(fd);
	tear_down(&fixture);
}

TEST(control, a_long_answer_is_complete)
{
	struct fixture fixture;
	json_t *result = NULL, *list;
	int fd;

	REQUIRE(set_up(&fixture));
	fd = control_connect(fixture.path);
	CHECK_EQUAL(control_call(fd, "long", NULL, &result), 0);
	list = json_object_get(result, "list");
	CHECK_EQUAL(json_array_size(list), 60000);
	CHECK_EQUAL(json_integer_value(json_array_get(list, 59999)), 1059999);
	json_decref(result);
	close(fd);
	tear_down(&fixture);
}

TEST(control, idle_clients_do_not_exclude_others)
{
	struct fixture fixture;
	int idle[3 * CONTROL_CLIENTS_MAX];

	REQUIRE(set_up(&fixture));
	for (size_t i = 0; i < sizeof(idle) / sizeof(*idle); i++) {
		idle[i] = control_connect(fixture.path);
		CHECK(idle[i] >= 0);
		send_text(idle[i], "{\"comm");
		check_alive(&fixture);
	}
	for (size_t i = 0; i < sizeof(idle) / sizeof(*idle); i++)
		close(idle[i]);
	check_alive(&fixture);
	tear_down(&fixture);
}

TEST(control, the_client_inactive_longest_is_disconnected)
{
	struct fixture fixture;
	int clients[CONTROL_CLIENTS_MAX], next;
	char byte;

	REQUIRE(set_up(&fixture));
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		clients[i] = control_connect(fixture.path);
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		CHECK_EQUAL(control_call(clients[i], "commands", NULL, NULL), 0);
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		if (i != 3)
			CHECK_EQUAL(control_call(clients[i], "commands", NULL, NULL), 0);
	next = control_connect(fixture.path);
	CHECK_EQUAL(control_call(next, "commands", NULL, NULL), 0);
	CHECK_EQUAL(recv(clients[3], &byte, 1, 0), 0);
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
		if (i != 3)
			CHECK_EQUAL(control_call(clients[i], "commands", NULL, NULL), 0);
		close(clients[i]);
	}
	close(next);
	tear_down(&fixture);
}

/* As another user, on a socket whose mode would allow it. */
static int call_as(uid_t user, const char *path)
{
	int fd, error;

	if (setresuid(user, user, user))
		_exit(100);
	fd = control_connect(path);
	error = fd < 0 ? fd : control_call(fd, "commands", NULL, NULL);
	_exit(-error);
}

static int status_as(uid_t user, const char *path)
{
	pid_t child = fork();
	int status = -1;

	if (!child)
		call_as(user, path);
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(control, only_its_user_and_root_may_give_commands)
{
	struct fixture fixture;
	struct stat status;

	if (geteuid())
		SKIP("only root can become somebody else");
	REQUIRE(set_up(&fixture));
	CHECK_EQUAL(stat(fixture.path, &status), 0);
	CHECK_EQUAL(status.st_mode & 0777, 0600);
	chmod(fixture.directory, 0755);
	CHECK_EQUAL(status_as(65534, fixture.path), EACCES);
	chmod(fixture.path, 0666);
	CHECK_EQUAL(status_as(65534, fixture.path), EPERM);
	CHECK_EQUAL(status_as(0, fixture.path), 0);
	tear_down(&fixture);
}

TEST(control, the_client_returns_the_command_s_error)
{
	struct fixture fixture;
	json_t *arguments = json_pack("{s:i}", "number", 2), *result;
	int fd;

	REQUIRE(set_up(&fixture));
	fd = control_connect(fixture.path);
	CHECK_EQUAL(control_call(fd, "add", arguments, &result), 0);
	CHECK_EQUAL(json_integer_value(json_object_get(result, "sum")), 2);
	json_decref(result);
	json_decref(arguments);
	CHECK_EQUAL(control_call(fd, "fail", NULL, &result), -EBUSY);
	CHECK_STRING(error_message(), "not now");
	CHECK(!result);
	CHECK_EQUAL(control_connected_pid(fd), getpid());
	control_destroy(fixture.control);
	fixture.control = NULL;
	CHECK(control_call(fd, "add", NULL, NULL) < 0);
	close(fd);
	tear_down(&fixture);
	fd = control_connect(fixture.path);
	CHECK_EQUAL(fd, -ENOENT);
	CHECK(strstr(error_message(), fixture.path));
}

/* A server's answers are not trusted either. */
TEST(control, the_client_refuses_invalid_answers)
{
	static const char *const bad[] = {
		"",
		"x",
		"[]",
		"{}",
		"{\"result\":1}",
		"{\"error\":1}",
		"{\"error\":{\"code\":1,\"message\":2}}",
	};
	static const char unknown[] = "{\"error\":{\"code\":\"EWHAT\",\"message\":\"m\"}}";
	json_t *result;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		CHECK_EQUAL(control_answer_parse(bad[i], strlen(bad[i]), &result), -EPROTO);
		CHECK(!result);
	}
	CHECK_EQUAL(control_answer_parse(unknown, strlen(unknown), &result), -EIO);
	CHECK_STRING(error_message(), "m");
}

struct runtime {
	char directory[64];
	char *before; /* the previous value */
};

static bool runtime_set_up(struct runtime *runtime)
{
	const char *before = getenv("XDG_RUNTIME_DIR");

	runtime->before = before ? strdup(before) : NULL;
	strcpy(runtime->directory, "/tmp/kvmscope-runs-XXXXXX");
	return mkdtemp(runtime->directory) && !setenv("XDG_RUNTIME_DIR", runtime->directory, 1);
}

static void runtime_tear_down(struct runtime *runtime)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/kvmscope", runtime->directory);
	rmdir(path);
	CHECK_EQUAL(rmdir(runtime->directory), 0);
	if (runtime->before)
		setenv("XDG_RUNTIME_DIR", runtime->before, 1);
	else
		unsetenv("XDG_RUNTIME_DIR");
	free(runtime->before);
}

TEST(control, sockets_of_ended_runs_are_removed)
{
	struct control_socket dead, alive, next;
	struct runtime runtime;
	struct stat status;

	REQUIRE(runtime_set_up(&runtime));
	REQUIRE_EQUAL(control_socket_open(&dead, "dead"), 0);
	REQUIRE_EQUAL(control_socket_open(&alive, "alive"), 0);
	CHECK_EQUAL(stat(alive.path, &status), 0);
	CHECK_EQUAL(status.st_mode & 0777, 0600);
	close(dead.fd); /* as after a kill */
	CHECK_EQUAL(stat(dead.path, &status), 0);
	REQUIRE_EQUAL(control_socket_open(&next, NULL), 0);
	CHECK_EQUAL(stat(dead.path, &status), -1);
	CHECK_EQUAL(stat(alive.path, &status), 0);
	CHECK_EQUAL(control_socket_open(&dead, "alive"), -EADDRINUSE);
	CHECK(strstr(error_message(), "a run named alive exists"));
	control_socket_close(&alive);
	control_socket_close(&next);
	control_socket_close(&next);
	runtime_tear_down(&runtime);
}

/* Number of listed runs with a socket below DIRECTORY. */
static size_t count_runs(const char *directory)
{
	struct control_run *runs;
	size_t count, ours = 0;

	if (control_runs_list(&runs, &count))
		return 0;
	for (size_t i = 0; i < count; i++)
		ours += !strncmp(runs[i].path, directory, strlen(directory));
	control_runs_free(runs, count);
	return ours;
}

TEST(control, a_run_is_found_by_its_name_and_its_process)
{
	struct control_socket one, two;
	struct runtime runtime;
	int fd;

	REQUIRE(runtime_set_up(&runtime));
	CHECK_EQUAL(count_runs(runtime.directory), 0);
	REQUIRE_EQUAL(control_socket_open(&one, "one"), 0);
	fd = control_runs_connect(getpid(), NULL);
	CHECK(fd >= 0);
	close(fd);
	REQUIRE_EQUAL(control_socket_open(&two, "two"), 0);
	CHECK_EQUAL(count_runs(runtime.directory), 2);
	CHECK_EQUAL(control_runs_connect(0, NULL), -ENOTUNIQ);
	CHECK_EQUAL(control_runs_connect(getpid(), NULL), -ENOTUNIQ);
	CHECK_EQUAL(control_runs_connect(0, "three"), -ENOENT);
	CHECK_EQUAL(control_runs_connect(1, NULL), -ENOENT);
	fd = control_runs_connect(0, "two");
	CHECK(fd >= 0);
	CHECK_EQUAL(control_connected_pid(fd), getpid());
	close(fd);
	control_socket_close(&one);
	control_socket_close(&two);
	runtime_tear_down(&runtime);
}

TEST(control, a_directory_that_others_can_write_to_is_refused)
{
	struct control_socket socket;
	struct runtime runtime;
	char path[96];

	REQUIRE(runtime_set_up(&runtime));
	snprintf(path, sizeof(path), "%s/kvmscope", runtime.directory);
	CHECK_EQUAL(mkdir(path, 0700), 0);
	CHECK_EQUAL(chmod(path, 0777), 0);
	CHECK_EQUAL(control_socket_open(&socket, NULL), -EPERM);
	CHECK_EQUAL(rmdir(path), 0);
	CHECK_EQUAL(symlink("/tmp", path), 0);
	CHECK(control_socket_open(&socket, NULL) < 0);
	CHECK_EQUAL(unlink(path), 0);
	runtime_tear_down(&runtime);
}

TEST(control, names_are_file_names_and_not_numbers)
{
	CHECK(control_name_is_good("web"));
	CHECK(control_name_is_good("Web-1.old_x"));
	CHECK(!control_name_is_good(""));
	CHECK(!control_name_is_good("12"));
	CHECK(!control_name_is_good(".x"));
	CHECK(!control_name_is_good("a/b"));
	CHECK(!control_name_is_good("a b"));
	CHECK(!control_name_is_good("a23456789012345678901234567890123"));
}
