// SPDX-License-Identifier: Apache-2.0
//
// Values between Python and C++, as strict as pybind11 is: cast<T>::load says
// whether an object is a T or, with `convert`, may become one (errors of Python
// are cleared), give makes a new reference or returns NULL with Python's error
// set.
#pragma once

#include <Python.h>

#include <catorch/tensor.hpp>

namespace catorch {

// An owned reference.
class Ref {
	PyObject *o_;

public:
	Ref(PyObject *o = nullptr) : o_(o) {}
	Ref(const Ref &) = delete;
	~Ref() { Py_XDECREF(o_); }
	PyObject *get() const { return o_; }
	PyObject *give() { return std::exchange(o_, nullptr); }
	explicit operator bool() const { return o_; }
};

// Of a module that has been imported.
inline PyObject *attribute(const char *module, const char *name)
{
	PyObject *m = PyImport_AddModule(module);
	return m ? PyObject_GetAttrString(m, name) : nullptr;
}

// torch's type of tensors and its functions that give and take handles; held
// for as long as the process lives.
struct Torch {
	PyObject *tensor = attribute("torch", "Tensor");
	PyObject *give = attribute("torch._C._aoti", "unsafe_alloc_void_ptr_from_tensor");
	PyObject *take = attribute("torch._C._aoti", "alloc_tensor_by_stealing_from_void_ptr");
	static const Torch &get()
	{
		static const Torch t;
		return t;
	}
};

template <class T, class = void> struct cast;

template <> struct cast<at::Tensor> {
	static bool load(PyObject *o, at::Tensor &v, bool)
	{
		const Torch &t = Torch::get();
		if (PyObject_IsInstance(o, t.tensor) != 1)
			return PyErr_Clear(), false;
		Ref capsule(PyObject_CallFunctionObjArgs(t.give, o, nullptr));
		void *h = capsule ? PyCapsule_GetPointer(capsule.get(), nullptr) : nullptr;
		if (!h)
			return PyErr_Clear(), false;
		v = at::Tensor(static_cast<AtenTensorHandle>(h));
		return true;
	}
	static PyObject *give(const at::Tensor &v)
	{
		AtenTensorHandle h;
		if (!v.defined())
			Py_RETURN_NONE;
		must(aoti_torch_new_tensor_handle(v.handle(), &h), "handle");
		Ref capsule(PyCapsule_New(h, nullptr, nullptr));
		PyObject *o = capsule ? PyObject_CallFunctionObjArgs(Torch::get().take,
								     capsule.get(), nullptr) :
					nullptr;
		// Despite its name it leaves the handle to us.
		aoti_torch_delete_tensor_object(h);
		return o;
	}
};

template <> struct cast<bool> {
	static bool load(PyObject *o, bool &v, bool convert)
	{
		PyNumberMethods *n = Py_TYPE(o)->tp_as_number;

		v = o == Py_True;
		if (PyBool_Check(o) || (convert && o == Py_None))
			return true;
		int truth = convert && n && n->nb_bool ? n->nb_bool(o) : -1;
		PyErr_Clear();
		v = truth == 1;
		return truth >= 0;
	}
	static PyObject *give(bool v) { return PyBool_FromLong(v); }
};

template <class T> struct cast<T, std::enable_if_t<std::is_integral_v<T>>> {
	static bool load(PyObject *o, T &v, bool)
	{
		if (PyFloat_Check(o))
			return false;
		Ref n(PyNumber_Index(o));
		if (!n)
			return PyErr_Clear(), false;
		if (std::is_unsigned_v<T>) {
			unsigned long long u = PyLong_AsUnsignedLongLong(n.get());
			v = T(u);
			return fits(u == v);
		}
		long long i = PyLong_AsLongLong(n.get());
		v = T(i);
		return fits(i == (long long)v);
	}
	static PyObject *give(T v)
	{
		return std::is_unsigned_v<T> ? PyLong_FromUnsignedLongLong(v) :
					       PyLong_FromLongLong((long long)v);
	}

private:
	static bool fits(bool same)
	{
		if (!PyErr_Occurred())
			return same;
		return PyErr_Clear(), false;
	}
};

template <class T> struct cast<T, std::enable_if_t<std::is_floating_point_v<T>>> {
	static bool load(PyObject *o, T &v, bool convert)
	{
		if (!convert && !PyFloat_Check(o))
			return false;
		v = T(PyFloat_AsDouble(o));
		if (!PyErr_Occurred())
			return true;
		return PyErr_Clear(), false;
	}
	static PyObject *give(T v) { return PyFloat_FromDouble(double(v)); }
};

template <> struct cast<std::string> {
	static bool load(PyObject *o, std::string &v, bool)
	{
		Py_ssize_t n;
		const char *s = PyUnicode_Check(o) ? PyUnicode_AsUTF8AndSize(o, &n) : nullptr;
		if (!s)
			return PyErr_Clear(), false;
		v.assign(s, size_t(n));
		return true;
	}
	static PyObject *give(const std::string &v)
	{
		return PyUnicode_FromStringAndSize(v.data(), Py_ssize_t(v.size()));
	}
};

template <> struct cast<at::Scalar> {
	static bool load(PyObject *o, at::Scalar &v, bool convert)
	{
		int64_t i;
		double d;
		if (PyBool_Check(o))
			v = o == Py_True;
		else if (cast<int64_t>::load(o, i, convert))
			v = i;
		else if (cast<double>::load(o, d, convert))
			v = d;
		else
			return false;
		return true;
	}
	static PyObject *give(const at::Scalar &v)
	{
		return v.isFloatingPoint() ? cast<double>::give(v.toDouble()) :
		       v.isBoolean() ? cast<bool>::give(v.toBool()) :
				       cast<int64_t>::give(v.toLong());
	}
};

template <class T> struct cast<std::optional<T>> {
	static bool load(PyObject *o, std::optional<T> &v, bool convert)
	{
		if (o == Py_None)
			return v.reset(), true;
		return cast<T>::load(o, v.emplace(), convert);
	}
	static PyObject *give(const std::optional<T> &v)
	{
		if (!v)
			Py_RETURN_NONE;
		return cast<T>::give(*v);
	}
};

template <class T> struct cast<std::vector<T>> {
	static bool load(PyObject *o, std::vector<T> &v, bool convert)
	{
		if (!PySequence_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o))
			return false;
		Ref list(PySequence_Fast(o, ""));
		if (!list)
			return PyErr_Clear(), false;
		v.clear();
		for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); i++) {
			T one{};
			if (!cast<T>::load(PySequence_Fast_GET_ITEM(list.get(), i), one,
					  convert))
				return false;
			v.push_back(std::move(one));
		}
		return true;
	}
	static PyObject *give(const std::vector<T> &v)
	{
		Ref list(PyList_New(Py_ssize_t(v.size())));
		for (size_t i = 0; list && i < v.size(); i++) {
			PyObject *one = cast<T>::give(v[i]);
			if (!one)
				return nullptr;
			PyList_SET_ITEM(list.get(), Py_ssize_t(i), one);
		}
		return list.give();
	}
};

// Results only.
template <class... T> struct cast<std::tuple<T...>> {
	static PyObject *give(const std::tuple<T...> &v)
	{
		Ref out(PyTuple_New(sizeof...(T)));
		return out && fill(out.get(), v, std::index_sequence_for<T...>()) ? out.give() :
										    nullptr;
	}

private:
	template <size_t... I>
	static bool fill(PyObject *out, const std::tuple<T...> &v, std::index_sequence<I...>)
	{
		return (put(out, I, cast<T>::give(std::get<I>(v))) && ...);
	}
	static bool put(PyObject *out, size_t i, PyObject *one)
	{
		return one && PyTuple_SetItem(out, Py_ssize_t(i), one) == 0;
	}
};

template <class A, class B> struct cast<std::pair<A, B>> {
	static PyObject *give(const std::pair<A, B> &v)
	{
		return cast<std::tuple<A, B>>::give({v.first, v.second});
	}
};

template <class T, size_t N> struct cast<std::array<T, N>> {
	static PyObject *give(const std::array<T, N> &v)
	{
		return cast<std::vector<T>>::give({v.begin(), v.end()});
	}
};

// What keeps an argument while the function runs: views need an owner.
template <class T> struct kept { using type = T; };
template <class T> struct kept<c10::ArrayRef<T>> { using type = std::vector<T>; };

} // namespace catorch
