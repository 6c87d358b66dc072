/* SPDX-License-Identifier: Apache-2.0
 *
 * What every jail may see of the machine.
 */
#include "jail/view.h"

const char *const view_roots[] = {
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", NULL
};

const char *const view_etc[] = {
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf",
	"/etc/ld.so.conf.d", NULL
};

const char *const view_etc_user[] = {
	"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime",
	"/etc/ssl/certs", NULL
};

/* Thread pools count cores here. */
const char *const view_cpus[] = {
	"/sys/devices/system/cpu", "/sys/devices/system/node", NULL
};

/* What all cards share; the cards themselves are the caller's choice. */
const char *const view_nvidia[] = {
	"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
	"/dev/nvidia-modeset", NULL
};

static const char *const plain_devices[] = {
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
	NULL
};

static size_t add(struct landlock_rule *r, size_t n, size_t max,
		  const char *const *path, unsigned access)
{
	for (; *path && n < max; path++)
		r[n++] = (struct landlock_rule){ *path, access, 1 };
	return n;
}

size_t view_rules(struct landlock_rule *r, size_t max, int gpu,
		  int user)
{
	static const char *const proc[] = { "/proc", NULL };
	static const char *const sys[] = { "/sys", NULL };
	unsigned dev = LL_READ | LL_WRITE | LL_DEVICE;
	size_t n = 0;

	n = add(r, n, max, view_roots, LL_READ | LL_EXEC);
	n = add(r, n, max, view_etc, LL_READ);
	n = add(r, n, max, view_cpus, LL_READ);
	if (user)
		n = add(r, n, max, view_etc_user, LL_READ);
	n = add(r, n, max, plain_devices, dev);
	/* CUDA's start writes below /proc and fails (304) without it. */
	n = add(r, n, max, proc, gpu ? LL_READ | LL_WRITE | LL_DEVICE :
				       LL_READ);
	if (!gpu)
		return n;
	n = add(r, n, max, sys, LL_READ);
	return add(r, n, max, view_nvidia, dev);
}
