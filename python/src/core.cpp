// The package's C++ side as Python sees it. What is said to people is said in flash_ladder/__init__.py.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "harness/base/built.h"
#include "harness/features/feature.h"
#include "python/src/calls.h"
#include "stages/errors.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace ladder::python;
using ladder::Axes;

namespace {

/// Where an array is, as (address, axes, strides).
using Place = std::tuple<std::uintptr_t, Axes, Axes>;

Tensor tensor(const Place& place) {
    const auto& [data, axes, strides] = place;
    return {data, axes, strides};
}

/// An array, as (address, axes, whether it lies in the host's memory).
using Whole = std::tuple<std::uintptr_t, std::vector<std::int64_t>, bool>;

/// Of each argument, by name: what it is; of an array that one number may stand for the names of its sizes;
/// the option of `lab verify`; an example of its text; whether it is a part of another one.
nb::dict arguments_as_they_are() {
    constexpr const char* kinds[] = {"int32", "float32", "integer", "real"};
    nb::dict all;
    for (const NamedArgument& one : arguments()) {
        const ladder::FeatureInfo* feature = one.feature;
        const bool has_example = feature != nullptr && !feature->choices.empty();
        all[one.name] = nb::make_tuple(kinds[static_cast<int>(one.kind)], one.axes,
                                       feature == nullptr ? "" : feature->option,
                                       has_example ? feature->choices.front() : "", one.is_part);
    }
    return all;
}

/// What a signal's handler has raised while a call computed.
nb::object& interruption() {
    static auto& raised = *new nb::object;
    return raised;
}

/// Runs what Python does on a signal, such as Ctrl-C. Whether that has raised an exception, which is kept.
bool signal_has_raised() {
    const nb::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() == 0) return false;
    nb::python_error error;
    interruption() = nb::borrow(error.value());
    return true;
}

/// That exception, which is no longer kept, or None.
nb::object take_interruption() {
    nb::object raised = std::move(interruption());
    return raised.is_valid() ? raised : nb::none();
}

ladder::DType dtype_of(bool bf16) {
    return bf16 ? ladder::DType::bf16 : ladder::DType::fp16;
}

/// What DLPack says of an array: its address, axes, strides in elements, bits of an element, and whether a
/// GPU has it. The user of the address keeps the array.
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
        } catch (const Interrupted&) {
            const nb::object raised = take_interruption();
            PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
        }
    });
    using Free = nb::call_guard<nb::gil_scoped_release>;

    nb::class_<Mask>(m, "Mask").def("keys", &Mask::keys, "Q"_a, "K"_a);
    m.def(
        "mask_of",
        [](const Axes& Q, const Axes& K, bool causal, const std::vector<Whole>& arrays,
           std::vector<std::int64_t> integers, std::vector<double> reals, std::vector<std::string> names) {
            ladder::Given given{causal, Q, K, {}, std::move(integers), std::move(reals), std::move(names)};
            for (const auto& [data, axes, on_host] : arrays) given.arrays.push_back({data, axes, on_host});
            return mask_of(std::move(given));
        },
        "Q"_a, "K"_a, "causal"_a, "arrays"_a, "integers"_a, "reals"_a, "names"_a);
    nb::class_<Kernel>(m, "Kernel")
        .def("workspace_bytes", &Kernel::workspace_bytes, "Q"_a, "K"_a)
        .def("folder", &Kernel::folder)
        .def("width", &Kernel::width, "Q"_a, "K"_a, "V"_a)
        .def(
            "forward",
            [](Kernel& kernel, const Place& Q, const Place& K, const Place& V, const Place& O,
               std::uintptr_t L, bool bf16, const Mask& mask, std::optional<double> scale,
               std::uintptr_t workspace, std::uintptr_t stream) {
                kernel.forward(tensor(Q), tensor(K), tensor(V), tensor(O), L, dtype_of(bf16), mask, scale,
                               workspace, stream);
            },
            "Q"_a, "K"_a, "V"_a, "O"_a, "L"_a, "bf16"_a, "mask"_a, "scale"_a.none(), "workspace"_a,
            "stream"_a, Free())
        .def(
            "backward",
            [](Kernel& kernel, const Place& Q, const Place& K, const Place& V, const Place& O,
               std::uintptr_t L, const Place& dO, const Place& dQ, const Place& dK, const Place& dV,
               std::uintptr_t dsinks, bool bf16, const Mask& mask, std::optional<double> scale,
               std::uintptr_t workspace, std::uintptr_t stream) {
                kernel.backward(tensor(Q), tensor(K), tensor(V), tensor(O), L, tensor(dO), tensor(dQ),
                                tensor(dK), tensor(dV), dsinks, dtype_of(bf16), mask, scale, workspace,
                                stream);
            },
            "Q"_a, "K"_a, "V"_a, "O"_a, "L"_a, "dO"_a, "dQ"_a, "dK"_a, "dV"_a, "dsinks"_a, "bf16"_a, "mask"_a,
            "scale"_a.none(), "workspace"_a, "stream"_a, Free());
    m.def(
        "kernel_of",
        [](bool forward, const std::optional<std::string>& stage, const std::string& backend, const Axes& Q,
           const Axes& K,
           const Mask& mask) -> Kernel& { return kernel_of(forward, stage, backend, Q, K, mask); },
        "forward"_a, "stage"_a.none(), "backend"_a, "Q"_a, "K"_a, "mask"_a, nb::rv_policy::reference, Free());

    m.def("place_of", &place_of);
    m.def("arguments", &arguments_as_they_are);
    m.attr("version") = LADDER_VERSION;
    m.attr("built_from") = ladder::built_from;
    m.attr("built_by") = LADDER_COMPILER_FAMILY;
    m.def("start", &start);
    m.def("take_interruption", &take_interruption);
    end_calls_if(signal_has_raised);
    m.def("why_not", &why_not, Free());
    m.def("default_stage", &default_stage, "forward"_a, "sizes"_a, "options"_a, "backend"_a,
          "exactly"_a = false, Free());
    m.def("list_stages", &list_stages, Free());
    m.def("verify", &verify, "words"_a, "backend"_a, "options"_a.none(), "quick"_a, Free());
    m.def("count", &ladder::python::count, Free());
    m.def("time", &ladder::python::time, Free());
    m.def("cases", &cases, Free());
    m.def("fill_inputs", &fill_inputs, Free());
    m.def("judge", &judge, Free());
    m.def("prepare", &prepare, Free());
    m.def("dropout_mask", &dropout_mask, "P"_a, "mask"_a, "kept"_a, Free());
    m.def("synchronize", &synchronize, Free());
}
