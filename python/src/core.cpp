// The package's C++ side as Python sees it. What is said to people is said in flash_ladder/__init__.py.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "python/src/calls.h"
#include "stages/errors.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace ladder::python;

namespace {

using Axes = std::array<std::int64_t, 4>;
/// Where an array is, as (address, axes, strides).
using Place = std::tuple<std::uintptr_t, Axes, Axes>;

/// The table of C functions that a library's type of arrays has under __dlpack_c_exchange_api__ (DLPack 1.3,
/// struct DLPackExchangeAPI), as far as it is used here: PyTorch's tensors are read without an object for
/// each question.
struct ExchangeApi {
    std::uint32_t major, minor;
    ExchangeApi* older;
    void *allocate, *export_array, *import_array;
    int (*view)(void* array, nb::dlpack::dltensor* seen);  ///< what is seen is the array's; 0 if all is well
};
ExchangeApi* pytorch = nullptr;

/// PyTorch's table, if it has one: before tensors are passed.
void read_tensors_by(nb::handle capsule) {
    auto* table = static_cast<ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (table == nullptr) throw nb::python_error();
    if (table->major == 1) pytorch = table;
}

/// Of a place, or a tensor of PyTorch of four axes.
Tensor tensor(nb::handle x) {
    if (nb::isinstance<nb::tuple>(x)) {
        const auto [data, axes, strides] = nb::cast<Place>(x);
        return {data, axes, strides};
    }
    if (pytorch == nullptr || pytorch->view == nullptr) {
        return {nb::cast<std::uintptr_t>(x.attr("data_ptr")()), nb::cast<Axes>(x.attr("shape")),
                nb::cast<Axes>(x.attr("stride")())};
    }
    nb::dlpack::dltensor seen;
    if (pytorch->view(x.ptr(), &seen) != 0) throw nb::python_error();
    Tensor result{reinterpret_cast<std::uintptr_t>(seen.data) + seen.byte_offset, {}, {}};
    std::copy_n(seen.shape, 4, result.axes.begin());
    std::copy_n(seen.strides, 4, result.strides.begin());
    return result;
}

ladder::DType dtype_of(bool bf16) {
    return bf16 ? ladder::DType::bf16 : ladder::DType::fp16;
}

/// What DLPack says of an array: its address, axes, strides in elements, bits of an element, and whether a
/// GPU has it. Whoever uses the address keeps the array.
nb::tuple place_of(const nb::ndarray<nb::ro>& array) {
    nb::list axes, strides;
    for (std::size_t i = 0; i < array.ndim(); ++i) {
        axes.append(array.shape(i));
        strides.append(array.stride(i));
    }
    const int device = array.device_type();
    const bool host = device == nb::device::cpu::value || device == nb::device::cuda_host::value;
    return nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), nb::tuple(axes), nb::tuple(strides),
                          int(array.dtype().bits), !host, array.device_id());
}

}  // namespace

NB_MODULE(_core, m) {
    nb::exception<ladder::CheckFailed>(m, "CheckFailed", PyExc_RuntimeError);
    nb::exception<ladder::CannotRun>(m, "CannotRun", PyExc_RuntimeError);
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const ladder::BadUsage& error) {
            PyErr_SetString(PyExc_ValueError, error.what());
        }
    });
    using Free = nb::call_guard<nb::gil_scoped_release>;

    nb::class_<Kernel>(m, "Kernel")
        .def(nb::init<const std::string&, const std::string&>(), "stage"_a, "backend"_a, Free())
        .def_prop_ro("folder", [](const Kernel& kernel) { return kernel.stage().folder(); })
        .def_prop_ro("is_forward", &Kernel::is_forward)
        .def("workspace_bytes",
             [](Kernel& kernel, nb::handle Q, nb::handle K) {
                 return kernel.workspace_bytes(tensor(Q).axes, tensor(K).axes);
             })
        .def(
            "forward",
            [](Kernel& kernel, nb::handle Q, nb::handle K, nb::handle V, nb::handle O, std::uintptr_t L,
               bool bf16, bool causal, std::optional<double> scale, std::uintptr_t workspace,
               std::uintptr_t stream) {
                const Tensor q = tensor(Q), k = tensor(K), v = tensor(V), o = tensor(O);
                const nb::gil_scoped_release others_run;
                kernel.forward(q, k, v, o, L, dtype_of(bf16), causal, scale, workspace, stream);
            },
            "Q"_a, "K"_a, "V"_a, "O"_a, "L"_a, "bf16"_a, "causal"_a, "scale"_a.none(), "workspace"_a,
            "stream"_a)
        .def(
            "backward",
            [](Kernel& kernel, nb::handle Q, nb::handle K, nb::handle V, nb::handle O, std::uintptr_t L,
               nb::handle dO, nb::handle dQ, nb::handle dK, nb::handle dV, bool bf16, bool causal,
               std::optional<double> scale, std::uintptr_t workspace, std::uintptr_t stream) {
                const Tensor q = tensor(Q), k = tensor(K), v = tensor(V), o = tensor(O), d_o = tensor(dO),
                             dq = tensor(dQ), dk = tensor(dK), dv = tensor(dV);
                const nb::gil_scoped_release others_run;
                kernel.backward(q, k, v, o, L, d_o, dq, dk, dv, dtype_of(bf16), causal, scale, workspace,
                                stream);
            },
            "Q"_a, "K"_a, "V"_a, "O"_a, "L"_a, "dO"_a, "dQ"_a, "dK"_a, "dV"_a, "bf16"_a, "causal"_a,
            "scale"_a.none(), "workspace"_a, "stream"_a);

    m.def("read_tensors_by", &read_tensors_by);
    m.def("place_of", &place_of);
    m.attr("built_from") = LADDER_SOURCE_DIR;
    m.def("start", &start);
    m.def("why_not", &why_not, Free());
    m.def("default_stage", &default_stage, Free());
    m.def("list_stages", &list_stages, Free());
    m.def(
        "verify",
        [](const std::vector<std::string>& words, const std::string& backend, const std::string& shape,
           bool causal, bool bf16,
           bool quick) { return verify(words, backend, shape, causal, dtype_of(bf16), quick); },
        Free());
    m.def(
        "count",
        [](const std::string& word, const std::string& shape, bool causal, bool bf16) {
            return ladder::python::count(word, shape, causal, dtype_of(bf16));
        },
        Free());
    m.def(
        "time",
        [](const std::string& word, const std::string& shape, bool causal, bool bf16) {
            return ladder::python::time(word, shape, causal, dtype_of(bf16));
        },
        Free());
    m.def("prepare", &prepare, Free());
    m.def("synchronize", &synchronize, Free());
}
