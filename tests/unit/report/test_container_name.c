/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/container_name.h"

#include <string.h>

#include "tests/unit/shim/test.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void check_name(const char *cgroup, const char *expected)
{
	char name[64];

	container_name(cgroup, name, sizeof(name));
	CHECK_STRING(name, expected);
}

TEST(container_name, is_what_the_runtime_wrote)
{
	check_name("/system.slice/docker-" ID ".scope", "docker 0123456789ab");
	check_name("/docker/" ID, "docker 0123456789ab");
	check_name(
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice/cri-containerd-" ID
		".scope",
		"containerd 0123456789ab");
	check_name("/kubepods/burstable/pod0a1b/" ID, "kubernetes 0123456789ab");
	check_name("/machine.slice/libpod-" ID ".scope/container", "podman 0123456789ab");
	check_name("/machine.slice/crio-" ID ".scope", "crio 0123456789ab");
	check_name("/lxc/web", "lxc web");
	check_name("/lxc.payload.web/system.slice/nginx.service", "lxc web");
	check_name("/machine.slice/machine-debian.scope", "machine debian");
}

/* A nested container is the inner one. */
TEST(container_name, is_that_of_the_innermost)
{
	check_name("/lxc.payload.outer/system.slice/docker-" ID ".scope", "docker 0123456789ab");
}

TEST(container_name, is_empty_for_other_cgroups)
{
	check_name("", "");
	check_name("/", "");
	check_name("/system.slice/ssh.service", "");
	check_name("/system.slice/docker.service", "");
	check_name("/system.slice/docker-0123.scope", "");
	check_name("/system.slice/docker-.scope", "");
	check_name("/user.slice/" ID, "");
	check_name("/docker", "");
	check_name("/lxc", "");
	check_name("/docker/buildkit/x", "");
	check_name("/libpod_parent/libpod-" ID, "");
}

TEST(container_name, of_any_length_fits)
{
	char cgroup[600] = "/lxc/", name[8];

	memset(cgroup + 5, 'n', 200);
	container_name(cgroup, name, sizeof(name));
	CHECK_STRING(name, "lxc nnn");
	memset(cgroup + 5, 'n', 500);
	container_name(cgroup, name, sizeof(name));
	CHECK_STRING(name, "");
}
