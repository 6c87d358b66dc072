/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of moves that the host hands to the kernel `move`, by value.
 * Read by the C compiler and by NVRTC.
 */
#ifndef CA_JUDGE_CUDA_MOVE_H
#define CA_JUDGE_CUDA_MOVE_H

#define MOVE_MAX 96		/* a kernel's arguments end at 4 KB */
#define MOVE_CHUNK 16384	/* bytes that one block moves in one go */
#define MOVE_THREADS 256

struct move {
	unsigned long long dst;
	unsigned long long src;		/* 0: dst is filled with poison */
	unsigned long long bytes;
	unsigned long long first;	/* number of its first chunk */
};

struct moves {
	unsigned long long seed;	/* of the poison */
	unsigned long long chunks;	/* of all moves */
	unsigned long long n;
	struct move m[MOVE_MAX];
};

#endif
