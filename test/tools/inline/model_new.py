# SPDX-License-Identifier: Apache-2.0
"""Most of what the slim headers offer, for comparing them with torch's own."""
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
using torch::Tensor;

Tensor scale(Tensor x, double k)
{
	TORCH_CHECK(x.is_contiguous(), "want contiguous, not ", x.sizes(), " of ", x.strides());
	auto out = torch::empty_like(x);
	AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "scale", ([&] {
		const scalar_t *p = x.data_ptr<scalar_t>();
		scalar_t *q = out.data_ptr<scalar_t>();
		for (int64_t i = 0; i < x.numel(); i++)
			q[i] = p[i] * static_cast<scalar_t>(k) + scalar_t(1) / (p[i] + 2.0f);
	}));
	return out;
}

std::vector<Tensor> views(Tensor x)
{
	return {x.t(), x.view({-1}), x.view({2, 2, 5}), x.t().reshape({10, 2}), x.unsqueeze(1),
		x.unsqueeze(-1), x.unsqueeze(0).squeeze(), x.unsqueeze(1).squeeze(1), x[1], x[-1],
		x.narrow(1, 1, 3), x.slice(1, 1, c10::nullopt, 2), x.slice(0, -2), x.flatten(),
		x.unsqueeze(0).expand({3, -1, 5}), x.transpose(0, -1).contiguous(),
		x.slice(1, 0, 4).view({2, 2, 4}), x.select(1, 2), x.detach(),
		x.permute({1, 0}).flatten()};
}

std::vector<Tensor> made(Tensor x)
{
	auto o = x.options();
	return {torch::zeros({2, 3}, o.dtype(torch::kLong)), torch::ones({2}), torch::full({2}, 7),
		torch::full({}, 2.5, o), torch::empty({2, 0}, o),
		torch::zeros_like(x.slice(1, 0, 3)),
		torch::ones_like(x, torch::kInt), torch::empty_like(x.t()).fill_(3), x.t().clone(),
		x.to(torch::kHalf), x.to(at::kBFloat16).to(at::kDouble), x.clone().zero_(),
		x.unsqueeze(0).unsqueeze(0).contiguous(at::MemoryFormat::ChannelsLast),
		torch::zeros({1, 2, 2, 2}, o.memory_format(at::MemoryFormat::ChannelsLast)),
		torch::tensor_of(x)};
}

std::tuple<Tensor, Tensor, int64_t> operators(const Tensor &x, c10::optional<Tensor> b)
{
	auto [most, at_most] = x.max(1);
	auto where = at_most;
	auto y = (x * 2 / 1.5).sum({0}, true).exp().clamp(0.5, 9.0) * at::cumsum(x, 0);
	y = 1 - (y + x) + 0.5;
	y *= 3;
	y -= x;
	where = where + 2 - where * 3;
	y.div_(-x);
	return {at::cat({y, most.unsqueeze(0).expand({5, 4}).t()}, 1),
		b.has_value() ? *b : where, at::stack({x, x}).sum().item<int64_t>()};
}

void set(Tensor x, int64_t i)
{
	auto a = x.accessor<float, 2>();
	for (int64_t k = 0; k < a.size(1); k++)
		a[i][k] = float(k);
}

std::string describe(const Tensor &x, std::vector<int64_t> v, bool flag)
{
	return c10::str(x.scalar_type(), ' ', x.device(), ' ', x.sizes(), ' ', x.dim(), ' ',
			x.size(-1), ' ', x.stride(0), ' ', x.element_size(), ' ', x.numel(), ' ',
			x.is_cuda(), ' ', x.storage_offset(), ' ', v.size(), ' ', flag, ' ',
			x.options().device(), ' ', x.dtype() == torch::kFloat32);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
	m.doc() = "most of it";
	m.def("scale", &scale, "scales", py::arg("x"), py::arg("k") = 2.0);
	m.def("views", &views);
	m.def("made", &made);
	m.def("operators", &operators, py::arg("x"), py::arg("b") = c10::nullopt);
	m.def("set", &set, py::call_guard<py::gil_scoped_release>());
	m.def("describe", &describe);
	m.def("over", [](int64_t n) { return n + 1; });
	m.def("over", [](double f) { return f / 2; });
	m.def("over", [](std::vector<double> v) { return v; });
	m.def("threads", [](int64_t n) {
		std::vector<int64_t> v(n);
		at::parallel_for(0, n, 1, [&](int64_t b, int64_t e) {
			for (; b < e; b++)
				v[b] = b * b;
		});
		return v;
	});
}
""".replace("torch::tensor_of(x)", "x.narrow(0, 1, 2)")

extension = load_inline("most", SOURCE, extra_cflags=["-O0"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.scale(x)
