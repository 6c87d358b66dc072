# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Candidates that read only part of their input: reductions over so many
# elements that a sample says nearly the same.

# parts_task DIR EXPRESSION LAUNCHER: model.py with the expression in x (4 rows
# of 64 Ki elements), and a candidate that hands rows to a function of parts.c
parts_task() {
	mkdir -p "$1/kernels"
	cat >"$1/model.py" <<-END
		import torch
		import torch.nn.functional as F
		class Model(torch.nn.Module):
		    def forward(self, x):
		        return $2
		def get_inputs():
		    return [(0.25 + 2 * torch.rand(())) * torch.randn(4, 65536)]
		def get_init_inputs():
		    return []
	END
	cat >"$1/model_new.py" <<-END
		import cuda_extension
		import torch
		class ModelNew(torch.nn.Module):
		    def forward(self, x):
		        y = torch.empty_like(x)
		        cuda_extension.$3(x, y, 4, 65536)
		        return $4
	END
	parts_kernel "$1" 1
}

# parts_kernel DIR CONDITION: reads element i of n where the condition holds
parts_kernel() {
	cat >"$1/kernels/parts.c" <<-END
		#include <math.h>
		#include <stdint.h>
		#define READ(i) ($2)
		static uint64_t mix(uint64_t x)
		{
			x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
			return x ^ x >> 33;
		}
		/* Mean and variance of what is read. */
		static void moments(const float *x, int64_t n, double *mean, double *var)
		{
			double s = 0, q = 0, m = 0;
			(void)mix;
			for (int64_t i = 0; i < n; i++)
				if (READ(i)) {
					s += x[i];
					q += (double)x[i] * x[i];
					m++;
				}
			*mean = s / m;
			*var = q / m - *mean * *mean;
		}
		void layer_norm(const float *x, float *y, int64_t rows, int64_t n)
		{
			for (int64_t r = 0; r < rows; r++, x += n, y += n) {
				double mean, var;
				moments(x, n, &mean, &var);
				for (int64_t i = 0; i < n; i++)
					y[i] = (x[i] - mean) / sqrt(var + 1e-5);
			}
		}
		void variance(const float *x, float *y, int64_t rows, int64_t n)
		{
			for (int64_t r = 0; r < rows; r++, x += n) {
				double mean, var;
				moments(x, n, &mean, &var);
				y[r] = var;
			}
		}
		void softmax(const float *x, float *y, int64_t rows, int64_t n)
		{
			for (int64_t r = 0; r < rows; r++, x += n, y += n) {
				double top = -INFINITY, s = 0, m = 0;
				for (int64_t i = 0; i < n; i++)
					if (READ(i) && x[i] > top)
						top = x[i];
				for (int64_t i = 0; i < n; i++)
					if (READ(i)) {
						s += exp(x[i] - top);
						m++;
					}
				for (int64_t i = 0; i < n; i++)
					y[i] = exp(x[i] - top) * m / n / s;
			}
		}
		void sigmoid_mean(const float *x, float *y, int64_t rows, int64_t n)
		{
			double s = 0, m = 0;
			for (int64_t i = 0; i < rows * n; i++)
				if (READ(i)) {
					s += 1 / (1 + exp(-x[i])) + fabs(x[i]) / 64;
					m++;
				}
			*y = s / m;
		}
	END
}

# The parts that are tried, each with a name that tells verdicts apart.
parts_list() {
	cat <<-'END'
		first-half i < n / 2
		last-half i >= n / 2
		first-16th i < n / 16
		every-16th i % 16 == 0
		every-third i % 3 == 0
		not-last-8th i < n / 8 * 7
		chunks-of-1024 (i >> 10 & 1) == 0
		lines-at-random mix(i >> 4) % 4 == 0
	END
}
