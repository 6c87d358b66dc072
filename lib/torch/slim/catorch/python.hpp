// SPDX-License-Identifier: Apache-2.0
//
// The part of pybind11's interface that binds functions: PYBIND11_MODULE,
// m.def with names, defaults and overloads.  Errors become Python's.
#pragma once

#include <catorch/cast.hpp>

namespace pybind11 {

// An argument's name, and its default if it has one.
struct arg_v;
struct arg {
	const char *name;
	constexpr explicit arg(const char *n) : name(n) {}
	template <class T> arg_v operator=(T &&v) const;
	arg &noconvert(bool = true) { return *this; }
};
struct arg_v {
	const char *name;
	PyObject *value;		// owned for ever
};
template <class T> arg_v arg::operator=(T &&v) const
{
	using V = std::decay_t<T>;
	if constexpr (std::is_same_v<V, const char *> || std::is_same_v<V, char *>)
		return {name, catorch::cast<std::string>::give(v)};
	else if constexpr (std::is_same_v<V, std::nullopt_t> || std::is_same_v<V, std::nullptr_t>)
		return {name, Py_NewRef(Py_None)};
	else
		return {name, catorch::cast<V>::give(v)};
}

namespace literals {
constexpr arg operator""_a(const char *name, size_t) { return arg(name); }
} // namespace literals

struct gil_scoped_release {
	PyThreadState *state = PyEval_SaveThread();
	gil_scoped_release() = default;
	gil_scoped_release(const gil_scoped_release &) = delete;
	~gil_scoped_release() { PyEval_RestoreThread(state); }
};
struct gil_scoped_acquire {
	PyGILState_STATE state = PyGILState_Ensure();
	gil_scoped_acquire() = default;
	gil_scoped_acquire(const gil_scoped_acquire &) = delete;
	~gil_scoped_acquire() { PyGILState_Release(state); }
};
struct nothing {};
template <class T> struct call_guard { using type = T; };

} // namespace pybind11

namespace catorch {

// One C++ function that Python can call; several of one name are tried in turn.
struct Function {
	struct Parameter {
		const char *name;	// NULL: by position only
		PyObject *value;	// default; NULL: none
	};
	std::string name, doc;
	std::vector<Parameter> params;
	Function *next = nullptr;	// overload
	PyMethodDef def;

	virtual ~Function() = default;
	virtual size_t arity() const = 0;
	// NULL without an error of Python's: the arguments are not of its types.
	virtual PyObject *call(PyObject *const *args, bool convert) = 0;

	// Puts arguments in their places; false when they do not match.
	bool arrange(PyObject *const *args, size_t n, PyObject *names, PyObject **out) const
	{
		size_t want = arity(), extra = names ? size_t(PyTuple_GET_SIZE(names)) : 0;

		if (n > want)
			return false;
		for (size_t i = 0; i < want; i++)
			out[i] = i < n ? args[i] : nullptr;
		for (size_t k = 0; k < extra; k++) {
			size_t i = n;
			while (i < want && !named(i, PyTuple_GET_ITEM(names, Py_ssize_t(k))))
				i++;
			if (i == want || out[i])
				return false;
			out[i] = args[n + k];
		}
		for (size_t i = 0; i < want; i++) {
			if (!out[i] && i < params.size())
				out[i] = params[i].value;
			if (!out[i])
				return false;
		}
		return true;
	}

private:
	bool named(size_t i, PyObject *name) const
	{
		return i < params.size() && params[i].name &&
		       PyUnicode_CompareWithASCIIString(name, params[i].name) == 0;
	}
};

constexpr size_t most_arguments = 64;

// Turns what a C++ function throws into Python's error.
template <class F> PyObject *guarded(const F &f)
{
	PyObject *type = PyExc_RuntimeError;
	std::string text;

	try {
		return f();
	} catch (const c10::IndexError &e) {
		type = PyExc_IndexError, text = e.what();
	} catch (const c10::ValueError &e) {
		type = PyExc_ValueError, text = e.what();
	} catch (const c10::TypeError &e) {
		type = PyExc_TypeError, text = e.what();
	} catch (const c10::NotImplementedError &e) {
		type = PyExc_NotImplementedError, text = e.what();
	} catch (const std::bad_alloc &e) {
		type = PyExc_MemoryError, text = e.what();
	} catch (const std::invalid_argument &e) {
		type = PyExc_ValueError, text = e.what();
	} catch (const std::out_of_range &e) {
		type = PyExc_IndexError, text = e.what();
	} catch (const std::exception &e) {
		text = e.what();
	} catch (...) {
		text = "Caught an unknown exception!";
	}
	PyErr_SetString(type, text.c_str());
	return nullptr;
}

// What Python calls; self is a capsule around the first overload.
inline PyObject *invoke(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	auto *first = static_cast<Function *>(PyCapsule_GetPointer(self, nullptr));
	PyObject *placed[most_arguments], *result;

	// Overloads that fit exactly come first.
	for (int convert = !first->next; convert < 2; convert++)
		for (Function *f = first; f; f = f->next) {
			if (!f->arrange(args, size_t(n), names, placed))
				continue;
			result = guarded([&] { return f->call(placed, convert); });
			if (result || PyErr_Occurred())
				return result;
		}
	PyErr_Format(PyExc_TypeError, "%s(): incompatible function arguments", first->name.c_str());
	return nullptr;
}

template <class F, class Guard, class R, class... Args> struct Bound : Function {
	static_assert(sizeof...(Args) <= most_arguments, "too many arguments");
	F f;
	explicit Bound(F fn) : f(std::move(fn)) {}
	size_t arity() const override { return sizeof...(Args); }
	PyObject *call(PyObject *const *args, bool convert) override
	{
		return run(args, convert, std::index_sequence_for<Args...>());
	}

private:
	template <size_t... I>
	PyObject *run([[maybe_unused]] PyObject *const *args, [[maybe_unused]] bool convert,
		      std::index_sequence<I...>)
	{
		std::tuple<typename kept<std::decay_t<Args>>::type...> v;

		if (!(cast<std::tuple_element_t<I, decltype(v)>>::load(args[I], std::get<I>(v),
								       convert) && ...))
			return nullptr;
		if constexpr (std::is_void_v<R>) {
			{
				[[maybe_unused]] Guard guard;
				f(static_cast<pass<Args>>(std::get<I>(v))...);
			}
			Py_RETURN_NONE;
		} else {
			return give([&]() -> R {
				[[maybe_unused]] Guard guard;
				return f(static_cast<pass<Args>>(std::get<I>(v))...);
			}());
		}
	}
	template <class T> static PyObject *give(const T &v) { return cast<T>::give(v); }
	// By value and const reference copies would do, but a reference to what
	// is kept serves all.
	template <class T>
	using pass = std::conditional_t<
		std::is_same_v<typename kept<std::decay_t<T>>::type, std::decay_t<T>>,
		std::conditional_t<std::is_lvalue_reference_v<T>, T, std::decay_t<T> &&>,
		std::decay_t<T>>;
};

template <class Guard, class R, class... A> Function *bind(R (*f)(A...))
{
	return new Bound<R (*)(A...), Guard, R, A...>(f);
}
template <class Guard, class F, class R, class C, class... A>
Function *bind_object(F f, R (C::*)(A...) const)
{
	return new Bound<F, Guard, R, A...>(std::move(f));
}
template <class Guard, class F> auto bind(F f) -> decltype(bind_object<Guard>(f, &F::operator()))
{
	return bind_object<Guard>(std::move(f), &F::operator());
}

template <class... Extra> struct guard_of { using type = pybind11::nothing; };
template <class G, class... Extra> struct guard_of<pybind11::call_guard<G>, Extra...> {
	using type = G;
};
template <class E, class... Extra> struct guard_of<E, Extra...> : guard_of<Extra...> {};

inline void annotate(Function *f, const char *doc) { f->doc = doc; }
inline void annotate(Function *f, const std::string &doc) { f->doc = doc; }
inline void annotate(Function *f, pybind11::arg a) { f->params.push_back({a.name, nullptr}); }
inline void annotate(Function *f, pybind11::arg_v a) { f->params.push_back({a.name, a.value}); }
template <class G> void annotate(Function *, pybind11::call_guard<G>) {}

} // namespace catorch

namespace pybind11 {

class module_ {
	PyObject *m_;
	std::vector<catorch::Function *> first_;
	std::string doc_;

	void publish(catorch::Function *f)
	{
		f->def = {f->name.c_str(),
			  reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(catorch::invoke)),
			  METH_FASTCALL | METH_KEYWORDS, f->doc.c_str()};
		catorch::Ref self(PyCapsule_New(f, nullptr, nullptr));
		PyObject *fn = self ? PyCFunction_New(&f->def, self.get()) : nullptr;
		if (!fn || PyModule_AddObject(m_, f->name.c_str(), fn))
			throw std::runtime_error("cannot define '" + f->name + "'");
	}

public:
	explicit module_(PyObject *m) : m_(m) {}
	PyObject *ptr() const { return m_; }
	std::string &doc() { return doc_; }
	template <class F, class... Extra>
	module_ &def(const char *name, F &&fn, const Extra &...extra)
	{
		catorch::Function *f = catorch::bind<typename catorch::guard_of<Extra...>::type>(
			std::forward<F>(fn));

		f->name = name;
		(catorch::annotate(f, extra), ...);
		for (catorch::Function *g : first_)
			if (g->name == name) {
				while (g->next)
					g = g->next;
				g->next = f;
				return *this;
			}
		first_.push_back(f);
		publish(f);
		return *this;
	}
};
using module = module_;

} // namespace pybind11

namespace py = pybind11;

namespace torch {
namespace py = pybind11;
template <class F> F &&wrap_pybind_function(F &&f) { return std::forward<F>(f); }
} // namespace torch

#define CATORCH_TEXT2(x) #x
#define CATORCH_TEXT(x) CATORCH_TEXT2(x)
#define CATORCH_JOIN2(a, b) a##b
#define CATORCH_JOIN(a, b) CATORCH_JOIN2(a, b)
#define PYBIND11_MODULE(NAME, m)                                                                   \
	static void CATORCH_JOIN(catorch_fill_, NAME)(pybind11::module_ &);                        \
	extern "C" __attribute__((visibility("default"))) PyObject *CATORCH_JOIN(PyInit_, NAME)()  \
	{                                                                                          \
		static PyModuleDef def = {PyModuleDef_HEAD_INIT, CATORCH_TEXT(NAME), nullptr, -1,  \
					  nullptr, nullptr, nullptr, nullptr, nullptr};            \
		catorch::Ref module(PyModule_Create(&def));                                        \
		if (!module)                                                                       \
			return nullptr;                                                            \
		return catorch::guarded([&] {                                                      \
			pybind11::module_ made(module.get());                                      \
			CATORCH_JOIN(catorch_fill_, NAME)(made);                                   \
			return module.give();                                                      \
		});                                                                                \
	}                                                                                          \
	void CATORCH_JOIN(catorch_fill_, NAME)([[maybe_unused]] pybind11::module_ &m)
