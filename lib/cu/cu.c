/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices, modules, launches, waiting.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"
#include "cu/cu.h"

#define CHECK(d, call, what, e) cu_check((d)->api, call, what, e)

int cu_count(struct err *e)
{
	const struct cu_api *api = cu_api(e);
	int n = 0;

	if (!api || cu_check(api, api->DeviceCount(&n), "cuDeviceGetCount", e))
		return -1;
	return n;
}

int cu_find(const char *device, struct err *e)
{
	int n, want = 0;
	char *end;

	if (strncmp(device, "cuda", 4))
		return err_set(e, CA_USAGE, "no CUDA device: '%s'", device);
	if (device[4] != '\0') {
		if (device[4] != ':' || !isdigit((unsigned char)device[5]))
			return err_set(e, CA_USAGE, "no CUDA device: '%s'",
				       device);
		want = (int)strtol(device + 5, &end, 10);
		if (*end || end - device > 10)
			return err_set(e, CA_USAGE, "no CUDA device: '%s'",
				       device);
	}
	n = cu_count(e);
	if (n < 0)
		return -1;
	if (want >= n)
		return err_set(e, CA_UNAVAILABLE, "no device '%s': %d found",
			       device, n);
	return want;
}

static void uuid_text(const struct cu_uuid *u, char out[CU_UUID_TEXT])
{
	char *p = out + sprintf(out, "GPU-");

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		p += sprintf(p, "%02x", u->b[i]);
	}
}

/* The driver's own file says which node is which; libcuda does not. */
static int minor_number(const char *pci)
{
	static const char key[] = "Device Minor:";
	char path[96];
	struct str s = STR_INIT;
	const char *p;
	int minor = -1;

	snprintf(path, sizeof(path),
		 "/proc/driver/nvidia/gpus/%s/information", pci);
	if (!read_file(path, 65536, &s, NULL)) {
		p = strstr(s.buf, key);
		if (p)
			minor = atoi(p + sizeof(key) - 1);
	}
	str_release(&s);
	return minor;
}

static int attributes(const struct cu_api *api, cu_ord ord,
		      struct cu_info *i, struct err *e)
{
	int l2 = 0, khz = 0, width = 0, fd = 0, vmm = 0;
	int dom = 0, bus = 0, dev = 0;
	const struct { int attr; int *to; } row[] = {
		{ CU_ATTR_MAJOR, &i->major }, { CU_ATTR_MINOR, &i->minor },
		{ CU_ATTR_SMS, &i->sms }, { CU_ATTR_L2, &l2 },
		{ CU_ATTR_MEM_CLOCK_KHZ, &khz },
		{ CU_ATTR_BUS_WIDTH, &width },
		{ CU_ATTR_VMM, &vmm }, { CU_ATTR_POSIX_FD, &fd },
		{ CU_ATTR_PCI_DOMAIN, &dom }, { CU_ATTR_PCI_BUS, &bus },
		{ CU_ATTR_PCI_DEVICE, &dev },
	};

	for (size_t k = 0; k < sizeof(row) / sizeof(row[0]); k++)
		if (cu_check(api, api->DeviceAttr(row[k].to, row[k].attr, ord),
			     "cuDeviceGetAttribute", e))
			return -1;
	i->l2 = (size_t)l2;
	i->vmm = vmm && fd;
	/* Two transfers a clock. */
	i->bytes_per_s = 2.0 * khz * 1e3 * width / 8;
	snprintf(i->pci, sizeof(i->pci), "%04x:%02x:%02x.0", dom & 0xffff,
		 bus & 0xff, dev & 0xff);
	i->minor_number = minor_number(i->pci);
	return 0;
}

int cu_info(int ordinal, struct cu_info *i, struct err *e)
{
	const struct cu_api *api = cu_api(e);
	struct cu_uuid u;
	cu_ord ord;

	memset(i, 0, sizeof(*i));
	i->ordinal = ordinal;
	if (!api ||
	    cu_check(api, api->DeviceGet(&ord, ordinal), "cuDeviceGet", e) ||
	    cu_check(api, api->DeviceName(i->name, sizeof(i->name), ord),
		     "cuDeviceGetName", e) ||
	    cu_check(api, api->DeviceUuid(&u, ord), "cuDeviceGetUuid", e) ||
	    cu_check(api, api->DeviceMem(&i->mem, ord), "cuDeviceTotalMem",
		     e) ||
	    cu_check(api, api->DriverVersion(&i->driver),
		     "cuDriverGetVersion", e))
		return -1;
	uuid_text(&u, i->uuid);
	return attributes(api, ord, i, e);
}

int cu_bind(struct cu_dev *d, struct err *e)
{
	return CHECK(d, d->api->CtxSet(d->ctx), "cuCtxSetCurrent", e);
}

static int context(struct cu_dev *d, struct err *e)
{
	/* Fails when the context is in use already, which is no harm. */
	d->api->PrimaryFlags(d->ord, CU_SCHED_SPIN);
	if (CHECK(d, d->api->PrimaryRetain(&d->ctx, d->ord),
		  "cuDevicePrimaryCtxRetain", e))
		return -1;
	return cu_bind(d, e) ||
	       CHECK(d, d->api->StreamCreate(&d->stream, CU_NON_BLOCKING),
		     "cuStreamCreate", e) ? -1 : 0;
}

struct cu_dev *cu_dev_open(int ordinal, struct err *e)
{
	struct cu_dev *d = calloc(1, sizeof(*d));

	if (!d) {
		err_sys(e, CA_SOFTWARE, "device");
		return NULL;
	}
	d->api = cu_api(e);
	if (!d->api || cu_info(ordinal, &d->info, e) ||
	    CHECK(d, d->api->DeviceGet(&d->ord, ordinal), "cuDeviceGet", e) ||
	    context(d, e)) {
		cu_dev_close(d);
		return NULL;
	}
	return d;
}

void cu_dev_close(struct cu_dev *d)
{
	if (!d)
		return;
	if (d->stream)
		d->api->StreamDestroy(d->stream);
	if (d->ctx) {
		d->api->CtxSet(NULL);
		d->api->PrimaryRelease(d->ord);
	}
	free(d);
}

int cu_mem_info(struct cu_dev *d, size_t *avail, size_t *total,
		struct err *e)
{
	return CHECK(d, d->api->MemInfo(avail, total), "cuMemGetInfo", e);
}

int cu_module(struct cu_dev *d, const void *cubin, cu_mod *out,
	      struct err *e)
{
	return CHECK(d, d->api->ModuleLoad(out, cubin), "cuModuleLoadData",
		     e);
}

int cu_function(struct cu_dev *d, cu_mod m, const char *name, cu_fn *out,
		struct err *e)
{
	return CHECK(d, d->api->Function(out, m, name), name, e);
}

void cu_module_free(struct cu_dev *d, cu_mod m)
{
	if (m)
		d->api->ModuleUnload(m);
}

int cu_launch(struct cu_dev *d, cu_fn fn, unsigned blocks, unsigned threads,
	      void **args, struct err *e)
{
	return CHECK(d, d->api->Launch(fn, blocks, 1, 1, threads, 1, 1, 0,
				       d->stream, args, NULL),
		     "cuLaunchKernel", e);
}

int cu_wait(struct cu_dev *d, int64_t deadline, struct err *e)
{
	for (;;) {
		cu_rc rc = d->api->StreamQuery(d->stream);

		if (rc != CU_NOT_READY)
			return CHECK(d, rc, "cuStreamQuery", e);
		if (now_ns() > deadline)
			return 1;
	}
}

int cu_event_new(struct cu_dev *d, cu_event *out, struct err *e)
{
	return CHECK(d, d->api->EventCreate(out, 0), "cuEventCreate", e);
}

void cu_event_free(struct cu_dev *d, cu_event ev)
{
	if (ev)
		d->api->EventDestroy(ev);
}

int cu_event_record(struct cu_dev *d, cu_event ev, struct err *e)
{
	return CHECK(d, d->api->EventRecord(ev, d->stream), "cuEventRecord",
		     e);
}

double cu_event_ns(struct cu_dev *d, cu_event from, cu_event to,
		   struct err *e)
{
	float ms = 0;

	if (CHECK(d, d->api->EventElapsed(&ms, from, to),
		  "cuEventElapsedTime", e))
		return -1;
	return (double)ms * 1e6;
}

int cu_nodes(const struct cu_info *i, struct cu_nodes *out, struct err *e)
{
	static const char *const common[] = {
		"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
	};

	out->n = 0;
	snprintf(out->path[0], sizeof(out->path[0]), "/dev/nvidia%d",
		 i->minor_number);
	if (i->minor_number < 0 || access(out->path[0], F_OK))
		return err_set(e, CA_UNAVAILABLE, "no device node for '%s'",
			       i->uuid);
	out->n = 1;
	for (size_t k = 0; k < sizeof(common) / sizeof(common[0]); k++)
		if (!access(common[k], F_OK))
			snprintf(out->path[out->n++], sizeof(out->path[0]),
				 "%s", common[k]);
	return 0;
}
