/* SPDX-License-Identifier: Apache-2.0
 *
 * What judge and torch processes say to each other; ca-torch(5) is the
 * manual, lib/torch/proto.py the twin.  Little endian, x86-64 layout, no
 * padding that is not named.
 *
 * Two kinds of channel, both SOCK_SEQPACKET unix sockets:
 *
 * host channel (tool <-> host): JSON objects, one a packet.
 *   host: {"hello":5,"torch":"2.11.0","python":"3.12.3","cuda":true,
 *          "digest":"…"}            once it can fork
 *   tool: {"id":"7","op":"spawn","role":"worker","device":"cpu",
 *          "jail":"full"}           with SCM_RIGHTS: the child's channel end
 *   host: {"id":"7","pid":123}      pid in the host's pid namespace
 *   tool: the same with "park":true a shared host keeps the child for another
 *          tool; with it the child's channel end, a descriptor to hold as long
 *          as it is parked, and what goes to that tool: the judge's end, and
 *          memory if any
 *   host: {"id":"7","pid":123,"parked":true}   with them, where the tool has
 *          said "parked":true and such a child is there: the descriptor that
 *          it sent is not used
 *   host: {"exit":123,"status":9}   waitpid status, for each child, once
 *   EOF on either side: the other leaves; the host kills its children first.
 *   A host that is shared kills those of that tool, and stays.  There the
 *   tool speaks first:
 *   tool: {"op":"hello"}            with SCM_RIGHTS: the folder's lock file
 *   host: hello as above, or {"stale":true}: start another one
 *   tool: {"id":"9","op":"status"} or "leave"
 *
 * child channel (judge <-> child): the judge sends a JSON request in one
 * packet (at most CA_REQ_MAX bytes; what may be larger travels in memfds
 * passed with it) or, for an iteration, struct ca_go.  The child answers each
 * request, in order, with one struct ca_msg and nothing else.  Answers of an
 * oracle, and a baseline's to `table`, may point at JSON that it wrote to the
 * `desc` region; a worker's
 * answer is numbers only, and its `text` is shown to people, never read by
 * the judge.
 *
 * Roles: `worker` (candidate), `eager`, `compile` (baselines: model.py under
 * the same shim), `oracle` (model.py; makes inputs, state and expected
 * values), `task` (an oracle that ca-filter asks for more, see task.py),
 * `crawl`, `hf` and `combine` (make tasks; requests of their own, see there),
 * `calib` (trusted: measures the bracket's own cost), `record` (the dry run of
 * a candidate that builds its own kernels; lib/build/record.c).
 *
 * Requests, in the order in which they come:
 *   {"op":"jail"}         tells whether namespaces and uid were left behind;
 *                         the answer's SCM_CREDENTIALS name the process that
 *                         will run foreign code, and after it the judge may
 *                         seize that with ptrace.  Landlock and the system
 *                         call filter come with load.
 *   {"op":"begin","regions":[…]}   in its place, for who does without ptrace:
 *                         and they come now, the regions (as in map, `trace`
 *                         if any) are mapped, and CUDA is started, so that
 *                         load takes less; "warm": and so are kernels,
 *                         "after":N: at the end of file N.
 *   {"op":"map","regions":[{"name":"in0","bytes":N},…]}   fds in that order;
 *                         CPU: sealed memfds.  CUDA: VMM handles, except
 *                         regions with "host":true, which are memfds.
 *   {"op":"load", …}      loads code, constructs, binds state (below)
 *   struct ca_go          one iteration
 *   oracle only: {"op":"state",…} {"op":"inputs",…} {"op":"expect",…}
 *   {"op":"trace"}        completes the region `trace` (cu/trace.h)
 *   eager and compile: {"op":"table","set":0,"iterations":N}   after an
 *                         iteration over that set; answers with JSON in
 *                         `desc`: {"rows":[{"name":…,"op":…|null,"calls":…,
 *                         "us":…,"bytes":…|null,"grid":[…],"block":[…]},…]}
 *   {"op":"quit"}
 *
 * Regions.  worker, eager, compile: in0, in1 (two address sets for inputs),
 * slots (host memory: 2 x CA_SLOTS struct ca_slot, one block per set, scalars
 * of the inputs), params, pool (results), and on CUDA trace (host memory; what
 * CUPTI saw, see cu/trace.h) or, where there will be a table, in its place
 * desc: CUPTI serves one of a process.  oracle: inputs, slots, after
 * (inputs after forward, when it modified them), params, params_after,
 * expect, desc (host memory, JSON).  calib: in0, in1, pool.
 *
 * load for worker:
 *   {"op":"load","code":0,"spec":1,"object":2,"form":"light","threads":2}
 *   with the descriptors of memfds at these indexes: code is model_new.py,
 *   spec the JSON {"init":…,"state":[…],"inputs":…,"launchers":[…]}, object
 *   the shared object (absent: pure Python).
 * load for eager and compile: the same with model.py as code, no object, and
 *   for compile "mode":"default"|"max-autotune".
 * load for oracle: {"op":"load","code":0,"seed":"N","threads":2}; it answers
 *   with {"init":…,"state":[…],"inputs":…} in `desc` (mapped before, as is
 *   nothing else yet).
 * Any of these with "own_state":true: the model trains, keeps what its
 *   constructor drew under "seed", and `state` is empty.
 * load for calib: {"op":"load","input_bytes":N,"result_bytes":[N,…]}
 * load for record: {"op":"load","task":0,"code":1,"target":"cuda",
 *   "capability":[9,0],"threads":1}; it answers with {"requests":[…],
 *   "refused":text|null,"error":text|null} in `desc`.
 *
 * expect answers END_POOL, with the leaves filled in as they would be, while
 * no region `expect` is mapped or it is too small, so that the judge can
 * allocate and ask again.  A later map of a name replaces the region.
 *
 * init: {"args":[node…],"kwargs":{name:node…}}
 * state: [{"name":"fc.weight","kind":"param"|"buffer","dtype":"float32",
 *          "shape":[…],"offset":BYTES,"bytes":N}]   offsets into `params`,
 *          64-byte aligned; tied tensors share an offset; state_dict order.
 *          CA_GAP bytes or more are left before the first, between any two
 *          and behind the last, here and among inputs.
 * inputs: {"storages":[{"offset":BYTES,"bytes":N,"dtype":"float32"}],
 *          "args":[node…]}   dtype of the first tensor in the storage
 * node:   {"t":"tensor","storage":0,"dtype":"float32","shape":[…],
 *          "stride":[…],"offset":ELEMENTS}
 *         {"t":"slot","i":0}                       a number or bool
 *         {"t":"const","v":"text"|null|…}          str, None, and in init
 *                                                  integers and bools
 *         {"t":"dtype","v":"float32"} {"t":"device"}
 *         {"t":"list"|"tuple","v":[node…]} {"t":"dict","v":[[key,node]…]}
 *         {"t":"data","dtype":…,"shape":…,"b64":…}  a tensor among init args
 */
#ifndef CA_TORCH_PROTO_H
#define CA_TORCH_PROTO_H

#include <stdint.h>

#define CA_PROTO 6
#define CA_REQ_MAX 60000	/* bytes of a JSON request */
#define CA_LEAVES 64		/* results of one forward */
#define CA_NDIM 12
#define CA_SLOTS 64		/* scalar inputs */
#define CA_TEXT 2048
#define CA_GAP 512		/* zones in `inputs` and `params` */

#define CA_TAKEN "taken"	/* a packet: to a child that was parked */
#define CA_MAGIC_GO 0x6f676163u		/* "cago" */
#define CA_MAGIC_MSG 0x736d6163u	/* "cams" */

/* Element types; names are torch's. */
enum ca_dtype {
	DT_NONE, DT_BOOL, DT_U8, DT_I8, DT_I16, DT_I32, DT_I64,
	DT_F16, DT_BF16, DT_F32, DT_F64, DT_C64, DT_C128,
	DT_U16, DT_U32, DT_U64, DT_F8E4M3, DT_F8E5M2, DT_COUNT
};

/* What a result leaf is. */
enum ca_leaf_kind {
	LEAF_TENSOR = 1, /* bytes at offset in pool (expect for oracle) */
	LEAF_INT, LEAF_FLOAT, LEAF_BOOL,	/* value in `bits` */
	LEAF_NONE,
	LEAF_STR		/* first 8 bytes of its SHA-256 in `bits` */
};

struct ca_slot {		/* a scalar input */
	uint64_t kind;		/* LEAF_INT, LEAF_FLOAT, LEAF_BOOL */
	uint64_t bits;		/* int64, or double, or 0/1 */
};

struct ca_go {
	uint32_t magic;		/* CA_MAGIC_GO */
	uint32_t set;		/* address set, 0 or 1 */
	uint64_t seq;		/* 1, 2, 3, …; comes back */
	uint64_t forward_seed;	/* torch.manual_seed before forward */
	uint32_t flags;		/* enum ca_go_flag */
	uint32_t idle_us;	/* calib: how long to work */
};

enum ca_go_flag {
	GO_FIRST = 1,		/* first call: pool off, never timed */
	GO_SYNC = 2,		/* CUDA: synchronise before answering */
};

/* How a request ended, in a child's words; the judge maps it to a status. */
enum ca_end {
	END_OK = 0,
	END_SYNTAX,		/* code does not parse or import */
	END_NO_CLASS,		/* no Model / ModelNew / get_inputs */
	END_CONSTRUCT,		/* constructor or get_* raised */
	END_PARAM_MISMATCH,
	END_RAISED,		/* forward raised */
	END_OOM,
	END_UNSUPPORTED,	/* result or input of a kind we cannot carry */
	END_POOL,		/* a result did not fit */
	END_BAD_REQUEST,
	END_JAIL		/* the jail could not be entered */
};

struct ca_leaf {
	uint32_t kind;		/* enum ca_leaf_kind */
	uint32_t dtype;		/* enum ca_dtype */
	uint32_t ndim;
	uint32_t pad;
	uint64_t offset;	/* bytes; dense, row-major */
	uint64_t bits;
	uint64_t from, to;	/* the pool's block that the tensor was made
				 * in, if it was: its zones (zone.h) follow */
	int64_t shape[CA_NDIM];
};

struct ca_msg {
	uint32_t magic;		/* CA_MAGIC_MSG */
	uint32_t end;		/* enum ca_end */
	uint64_t seq;		/* of ca_go; 0 for other requests */
	uint64_t own_ns;	/* time inside the call of the model */
	uint64_t aten_compute;	/* ATen compute operations since the last msg */
	uint64_t aten_other;	/* allocations, views, copies */
	uint64_t canary;	/* of which the shim's own canary; must be 1 */
	uint64_t desc_len;	/* oracle: bytes of JSON in `desc` */
	uint32_t modified; /* oracle: bit 0 inputs, bit 1 state, by forward */
	uint32_t launches;	/* calls of launchers since the last msg */
	uint32_t nleaf;
	uint32_t phase;		/* enum ca_phase, where a failure happened */
	uint8_t structure[32];	/* SHA-256 of the container's canonical text */
	struct ca_leaf leaf[CA_LEAVES];
	char text[CA_TEXT];	/* NUL-terminated; for people: what went wrong,
				 * or the first ATen operation that computed */
};

enum ca_phase { PHASE_LOAD = 1, PHASE_CONSTRUCT, PHASE_STATE, PHASE_INPUTS,
		PHASE_FORWARD, PHASE_RESULT };

#endif
