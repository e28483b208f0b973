/// @file
/// PyTorch's operators flash_ladder::attention, with its gradients, attention_backward, append and decode.
/// flash_ladder/torch.py compiles this against the PyTorch that it finds, and says what it does.

#include <ATen/Context.h>
#include <ATen/DeviceGuard.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#ifdef LADDER_TORCH_HAS_CUDA
#    define USE_CUDA
#    include <torch/csrc/inductor/aoti_torch/c/shim.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/src/calls.h"
#include "stages/errors.h"

namespace {

using at::Tensor;
using Word = std::optional<c10::string_view>;
using Scale = std::optional<double>;
using Names = c10::List<std::string>;
using ladder::Axes;
using ladder::python::Mask;

std::optional<std::string> text(Word word) {
    return word ? std::optional(std::string(*word)) : std::nullopt;
}

const char* dtype_name(at::ScalarType type) {
    switch (type) {
        case at::kHalf:
            return "float16";
        case at::kBFloat16:
            return "bfloat16";
        case at::kFloat:
            return "float32";
        case at::kDouble:
            return "float64";
        case at::kFloat8_e4m3fn:
            return "float8_e4m3fn";
        case at::kInt:
            return "int32";
        case at::kLong:
            return "int64";
        case at::kShort:
            return "int16";
        case at::kChar:
            return "int8";
        case at::kByte:
            return "uint8";
        case at::kBool:
            return "bool";
        default:
            return c10::toString(type);
    }
}
const char* dtype_name(const Tensor& x) {
    return dtype_name(x.scalar_type());
}

std::string axes_text(at::IntArrayRef axes) {
    return "(" + c10::Join(", ", axes) + ")";
}

/// One 16-bit type, one device, and (B, H, N, d) each. Those whose names are in `in_e4m3` have that type.
void require_agreement(std::initializer_list<std::pair<const char*, const Tensor&>> tensors,
                       std::string_view in_e4m3 = "") {
    const Tensor& Q = tensors.begin()->second;
    for (const auto& [name, x] : tensors) {
        const bool of_8_bits = in_e4m3.find(name) != in_e4m3.npos;
        TORCH_CHECK_TYPE(!of_8_bits || x.scalar_type() == at::kFloat8_e4m3fn, name, " is ", dtype_name(x),
                         " and has scales; expected float8_e4m3fn");
        TORCH_CHECK_TYPE(of_8_bits || x.scalar_type() == Q.scalar_type(), "Q is ", dtype_name(Q), " and ",
                         name, " is ", dtype_name(x), ": they must agree");
        TORCH_CHECK_VALUE(x.device() == Q.device(), "Q is on ", Q.device(), " and ", name, " on ", x.device(),
                          ": they must agree");
        TORCH_CHECK_VALUE(x.dim() == 4, name, " is ", axes_text(x.sizes()), ", of rank ", x.dim(),
                          "; expected (B, H, N, d)");
    }
    const auto type = Q.scalar_type();
    TORCH_CHECK_TYPE(type == at::kHalf || type == at::kBFloat16 || in_e4m3.starts_with("Q"), "Q is ",
                     dtype_name(Q), "; expected float16 or bfloat16");
}

Axes four(at::IntArrayRef values) {
    Axes axes;
    std::copy_n(values.begin(), 4, axes.begin());
    return axes;
}

std::uintptr_t address(const Tensor& x) {
    return x.defined() ? reinterpret_cast<std::uintptr_t>(x.data_ptr()) : 0;
}

ladder::python::Tensor place(const Tensor& x) {
    return {address(x), four(x.sizes()), four(x.strides())};
}

ladder::DType dtype_of(const Tensor& x) {
    return x.scalar_type() == at::kBFloat16 ? ladder::DType::bf16 : ladder::DType::fp16;
}

/// As a tensor that an operator returns for x is laid out: as x is, but in the order of its axes where x
/// repeats elements. flash_ladder/torch.py has the same.
Tensor empty_as(const Tensor& x, at::ScalarType type) {
    const auto strides = x.strides();
    const bool repeats = std::find(strides.begin(), strides.end(), 0) != strides.end();
    return repeats ? at::empty(x.sizes(), x.options().dtype(type))
                   : at::empty_like(x, x.options().dtype(type));
}
Tensor empty_as(const Tensor& x) {
    return empty_as(x, x.scalar_type());
}

/// As a kernel with so many columns reads it: those that x lacks are zeros.
Tensor widened(const Tensor& x, std::int64_t columns) {
    if (x.size(3) == columns) return x;
    const Tensor wide = at::zeros({x.size(0), x.size(1), x.size(2), columns}, x.options());
    wide.narrow(3, 0, x.size(3)).copy_(x);
    return wide;
}

/// The columns that `like` has of what a kernel computed.
Tensor narrowed(const Tensor& x, const Tensor& like) {
    if (x.size(3) == like.size(3)) return x;
    const Tensor narrow = empty_as(like, x.scalar_type());
    narrow.copy_(x.narrow(3, 0, like.size(3)));
    return narrow;
}

/// Integers of another type, such as those of torch.cumsum, as int32: those in the host's memory if it
/// holds them, those on a GPU without a look at them.
Tensor as_int32(const std::string& name, const Tensor& x) {
    const auto others = {at::kLong, at::kShort, at::kChar, at::kByte};
    if (std::find(others.begin(), others.end(), x.scalar_type()) == others.end()) return x;
    const Tensor small = x.to(at::kInt);
    TORCH_CHECK_VALUE(!x.is_cpu() || small.to(x.scalar_type()).equal(x), name,
                      ": expected numbers below 2^31");
    return small;
}

/// What a call is given besides its tensors: arrays, integers and reals, and the names of all of these in
/// this order. Several integers may have one name.
struct Named {
    bool causal;
    at::TensorList arrays;
    c10::SymIntArrayRef integers;
    at::ArrayRef<double> reals;
    Names names;

    std::optional<Tensor> array(std::string_view name) const {
        for (std::size_t i = 0; i < arrays.size() && i < names.size(); ++i)
            if (std::string(names[i]) == name) return arrays[i];
        return std::nullopt;
    }

    bool has(std::string_view name) const {
        return std::any_of(names.begin(), names.end(), [&](const std::string& own) { return own == name; });
    }

    /// As stages take it; kernels read the arrays in `kept`. Numbers in the host's memory are checked first,
    /// and then copied to where Q is; those on a GPU are not read, as that would wait for it.
    Mask on_device_of(const Tensor& Q, const Tensor& K, std::vector<Tensor>& kept) const {
        ladder::Given given{causal, four(Q.sizes()), four(K.sizes()), {}, {}, reals.vec(), names.vec()};
        for (const c10::SymInt& number : integers)
            given.integers.push_back(number.guard_int(__FILE__, __LINE__));
        TORCH_CHECK_VALUE(names.size() >= arrays.size(), "there are ", arrays.size(), " arrays and ",
                          names.size(), " names");
        for (const Tensor& array : arrays) {
            const std::string& name = given.names[kept.size()];
            const auto& known = ladder::python::argument(name);
            const bool is_real = known.kind == ladder::CallArgument::Kind::float32;
            TORCH_CHECK_VALUE(array.is_cpu() || array.device() == Q.device(), name, " is on ", array.device(),
                              " and Q on ", Q.device(), ": they must agree");
            const Tensor numbers = is_real ? array : as_int32(name, array);
            const Tensor& x =
                kept.emplace_back(known.may_stride && array.dim() == 3 ? numbers : numbers.contiguous());
            const auto type = is_real ? at::kFloat : at::kInt;
            TORCH_CHECK_TYPE(x.scalar_type() == type, name, " is ", dtype_name(x), "; expected ",
                             dtype_name(type));
        }
        const auto as_they_are = [&] {
            given.arrays.clear();
            for (const Tensor& x : kept)
                given.arrays.push_back({address(x), x.sizes().vec(), x.is_cpu(), x.strides().vec()});
            return ladder::python::mask_of(given);
        };
        const Mask mask = as_they_are();
        bool moved = false;
        for (Tensor& x : kept) {
            if (x.device() == Q.device()) continue;
            x = x.to(Q.device(), /*non_blocking=*/true);
            moved = true;
        }
        return moved ? as_they_are() : mask;
    }
};

/// The stage for Q and K of these axes, whose results are the same bits each time if PyTorch is to be
/// deterministic. Where no such stage will do, PyTorch raises or warns, as it has been told.
ladder::python::Kernel& kernel_for(bool forward, Word stage, const std::string& backend, const Axes& Q,
                                   const Axes& K, const Mask& mask) {
    const bool exactly = at::globalContext().deterministicAlgorithms();
    auto& kernel = ladder::python::kernel_of(forward, text(stage), backend, Q, K, mask, exactly);
    if (exactly && !kernel.repeats_exactly()) {
        at::globalContext().alertNotDeterministic("flash_ladder's stage " + kernel.folder());
    }
    return kernel;
}

/// call(backend, stream) on the device of x, in its current stream. What the ladder throws is a ValueError,
/// or a RuntimeError whose text begins with its name.
template <class Call>
void on_device_of(const char* name, const Tensor& x, c10::string_view backend, const Call& call) {
    TORCH_CHECK_VALUE(x.is_cuda() || backend != "gpu", "backend is 'gpu' and ", name,
                      " is in the CPU's memory");
    try {
        const c10::DeviceGuard on_its_device(x.device());
        void* stream = nullptr;
#ifdef LADDER_TORCH_HAS_CUDA
        if (x.is_cuda()) TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.device().index(), &stream) == 0);
#endif
        call(x.is_cuda() ? "gpu" : std::string(backend), reinterpret_cast<std::uintptr_t>(stream));
    } catch (const ladder::BadUsage& error) {
        TORCH_CHECK_VALUE(false, error.what());
    } catch (const ladder::python::Interrupted& error) {
        TORCH_CHECK(false, "Interrupted: ", error.what());
    } catch (const ladder::CannotRun& error) {
        TORCH_CHECK(false, "CannotRun: ", error.what());
    } catch (const ladder::CheckFailed& error) {
        TORCH_CHECK(false, "CheckFailed: ", error.what());
    }
}

/// call(kernel, columns, mask, workspace, stream) with a stage, as on_device_of() of Q; `columns` is the head
/// dimension at which it computes.
template <class Call>
void with_kernel(bool forward, Word stage, c10::string_view backend, const Tensor& Q, const Tensor& K,
                 const Tensor& V, const Named& given, const Call& call) {
    on_device_of("Q", Q, backend, [&](const std::string& on, std::uintptr_t stream) {
        std::vector<Tensor> kept;
        const Mask mask = given.on_device_of(Q, K, kept);
        Axes of_Q = four(Q.sizes()), of_K = mask.keys(of_Q, four(K.sizes()));
        const Axes of_V = mask.keys(of_Q, four(V.sizes()));
        auto& kernel = kernel_for(forward, stage, on, of_Q, of_K, mask);
        const std::int64_t columns = kernel.width(of_Q, of_K, of_V);
        Tensor workspace;
        if (Q.is_cuda()) {
            of_Q[3] = of_K[3] = columns;
            const auto bytes = std::int64_t(kernel.workspace_bytes(of_Q, of_K));
            if (bytes > 0) workspace = at::empty({bytes}, Q.options().dtype(at::kByte));
        }
        call(kernel, columns, mask, address(workspace), stream);
    });
}

double default_scale(const Tensor& Q) {
    return 1 / std::sqrt(double(Q.size(3)));
}

/// O, as Q is laid out, and L.
std::tuple<Tensor, Tensor> computed(const Tensor& Q, const Tensor& K, const Tensor& V, const Named& given,
                                    Scale scale, Word stage, c10::string_view backend, bool may_copy) {
    const bool all = given.array("q_scale").has_value();  // of Q, K and V are e4m3, whose O has another type
    require_agreement({{"Q", Q}, {"K", K}, {"V", V}}, all ? "QKV"
                                                      : given.array("k_scale") || given.array("v_scale")
                                                          ? "KV"
                                                          : "");
    const auto type = !all ? Q.scalar_type() : given.has("out_dtype") ? at::kHalf : at::kBFloat16;
    Tensor O;
    const Tensor L = at::empty(Q.sizes().slice(0, 3), Q.options().dtype(at::kFloat));
    with_kernel(true, stage, backend, Q, K, V, given,
                [&](auto& kernel, std::int64_t columns, const Mask& mask, std::uintptr_t workspace,
                    std::uintptr_t stream) {
                    TORCH_CHECK_VALUE(may_copy || columns == Q.size(3), kernel.folder(),
                                      " has no head dimension ", Q.size(3), ", and decode copies no cache");
                    const Tensor q = widened(Q, columns), k = widened(K, columns), v = widened(V, columns);
                    const Tensor o = empty_as(q, type);
                    kernel.forward(place(q), place(k), place(v), place(o), address(L), dtype_of(o), mask,
                                   scale.value_or(default_scale(Q)), workspace, stream);
                    O = narrowed(o, Q);
                });
    return {O, L};
}

std::tuple<Tensor, Tensor> attention(const Tensor& Q, const Tensor& K, const Tensor& V, bool causal,
                                     at::TensorList arrays, c10::SymIntArrayRef integers,
                                     at::ArrayRef<double> reals, Names names, Scale scale, Word stage, Word,
                                     c10::string_view backend) {
    return computed(Q, K, V, {causal, arrays, integers, reals, names}, scale, stage, backend, true);
}

/// Of Q (B, H, Nq, d), and K and V (B, Hkv, N, d) or (pages, Hkv, page_size, d); these in e4m3 with scales.
std::tuple<Tensor, Tensor> decode(const Tensor& Q, const Tensor& K, const Tensor& V, bool causal,
                                  at::TensorList arrays, c10::SymIntArrayRef integers,
                                  at::ArrayRef<double> reals, Names names, Scale scale, Word stage,
                                  c10::string_view backend) {
    return computed(Q, K, V, {causal, arrays, integers, reals, names}, scale, stage, backend, false);
}

/// Writes k and v (B, N, Hkv, d) to a cache, and Q rotated to rotated_q, if there is one: torch.py's
/// append(). Returns the lengths with the new rows.
Tensor append(const Tensor& k_cache, const Tensor& v_cache, const std::optional<Tensor>& rotated_q,
              const Tensor& k, const Tensor& v, const std::optional<Tensor>& q,
              const std::optional<Tensor>& cos, const std::optional<Tensor>& sin, const Tensor& seqused,
              const std::optional<Tensor>& batch_index, const std::optional<Tensor>& block_table,
              const std::optional<Tensor>& k_scale, const std::optional<Tensor>& v_scale, bool interleaved,
              bool causal, c10::string_view backend) {
    TORCH_CHECK_VALUE(k_scale.has_value() == v_scale.has_value(), "k_scale and v_scale go together");
    const bool of_tokens = k_scale && k_scale->dim() == 3;
    TORCH_CHECK_VALUE(!k_scale || of_tokens == (v_scale->dim() == 3),
                      "k_scale and v_scale: both are of heads, or both of tokens");
    TORCH_CHECK_VALUE(cos.has_value() == sin.has_value(),
                      "rotary_cos and rotary_sin belong together, and one of them is None");
    TORCH_CHECK_VALUE(!batch_index || !block_table,
                      "cache_batch_idx and block_table: each says where the keys of a request are");
    TORCH_CHECK_VALUE(k.dim() == 4 && k_cache.dim() == 4, "k is ", axes_text(k.sizes()), " and k_cache is ",
                      axes_text(k_cache.sizes()), "; expected (B, N, H, d) for both");
    const auto type = k.scalar_type(), of_cache = k_scale ? at::kFloat8_e4m3fn : type;
    TORCH_CHECK_TYPE(type == at::kHalf || type == at::kBFloat16, "k is ", dtype_name(k),
                     "; expected float16 or bfloat16");
    std::vector<Tensor> kept;
    const auto require = [&](const char* name, const Tensor& x, at::ScalarType expected,
                             at::IntArrayRef axes) {
        TORCH_CHECK_VALUE(x.device() == k.device(), name, " is on ", x.device(), " and k on ", k.device(),
                          ": they must agree");
        TORCH_CHECK_VALUE(x.sizes() == axes, name, " is ", axes_text(x.sizes()), "; expected ",
                          axes_text(axes), " for k, k_cache and seqused");
        TORCH_CHECK_TYPE(x.scalar_type() == expected, name, " is ", dtype_name(x), "; expected ",
                         dtype_name(expected));
    };
    // Of (B, N, heads, d), or a pool of pages.
    const auto rows = [&](const char* name, const Tensor& x, at::ScalarType expected, at::IntArrayRef axes) {
        require(name, x, expected, axes);
        const std::int64_t step = expected == at::kFloat8_e4m3fn ? 16 : 1;  // as decode() requires it
        TORCH_CHECK_VALUE(x.stride(3) == 1, name, ": the elements of a row must be side by side");
        TORCH_CHECK_VALUE(address(x) % step == 0 && x.stride(0) % step == 0 && x.stride(1) % step == 0 &&
                              x.stride(2) % step == 0,
                          name, ": its strides must be multiples of ", step);
        return ladder::View{x.data_ptr(), x.stride(0), x.stride(2), x.stride(1)};
    };
    const auto array = [&](const char* name, const std::optional<Tensor>& x, at::ScalarType expected,
                           at::IntArrayRef axes) -> void* {
        if (!x) return nullptr;
        kept.push_back((expected == at::kInt ? as_int32(name, *x) : *x).contiguous());
        require(name, kept.back(), expected, axes);
        return kept.back().data_ptr();
    };
    const auto integers = [&](const char* name, const std::optional<Tensor>& x, at::IntArrayRef axes) {
        return static_cast<const int*>(array(name, x, at::kInt, axes));
    };
    const auto scales = [&](const char* name, const std::optional<Tensor>& x) {
        return static_cast<const float*>(array(name, x, at::kFloat, {k.size(0), k.size(2)}));
    };
    // (B, N, heads), or of a pool of pages
    const auto token_scales = [&](const char* name, const Tensor& x) {
        require(name, x, at::kFloat, k_cache.sizes().slice(0, 3));
        return ladder::View{x.data_ptr(), x.stride(0), x.stride(2), x.stride(1)};
    };
    ladder::Append a;
    a.B = int(k.size(0)), a.Hkv = int(k.size(2)), a.Nk = int(k.size(1)), a.d = int(k.size(3)), a.Nq = 0;
    const std::vector<std::int64_t> new_rows{k.size(0), k.size(1), k_cache.size(2), k_cache.size(3)};
    a.K = rows("k", k, type, new_rows);
    a.V = rows("v", v, type, new_rows);
    a.K_cache = rows("k_cache", k_cache, of_cache, k_cache.sizes());
    a.V_cache = rows("v_cache", v_cache, of_cache, k_cache.sizes());
    a.entries = int(k_cache.size(0)), a.slots = int(k_cache.size(1));
    a.lengths = integers("seqused", seqused, {a.B});
    a.batch_index = integers("cache_batch_idx", batch_index, {a.B});
    a.pages = block_table && block_table->dim() == 2 ? int(block_table->size(1)) : 0;
    a.block_table = integers("block_table", block_table, {a.B, a.pages});
    if (of_tokens) {
        a.K_token_scales = token_scales("k_scale", *k_scale);
        a.V_token_scales = token_scales("v_scale", *v_scale);
    } else {
        a.K_scales = scales("k_scale", k_scale), a.V_scales = scales("v_scale", v_scale);
    }
    if (cos) {
        TORCH_CHECK_VALUE(cos->dim() == 2 && cos->sizes() == sin->sizes() && 2 * cos->size(1) <= a.d,
                          "rotary_cos is ", axes_text(cos->sizes()), " and rotary_sin is ",
                          axes_text(sin->sizes()), "; expected (positions, at most ", a.d / 2, ") for both");
        a.fp32_angles = cos->scalar_type() == at::kFloat;
        a.cos = array("rotary_cos", cos, a.fp32_angles ? at::kFloat : type, cos->sizes());
        a.sin = array("rotary_sin", sin, a.fp32_angles ? at::kFloat : type, cos->sizes());
        a.positions = int(cos->size(0)), a.pairs = int(cos->size(1));
    }
    if (q && rotated_q) {
        TORCH_CHECK_VALUE(q->dim() == 4, "q is ", axes_text(q->sizes()), "; expected (B, Nq, H, d)");
        a.Nq = int(q->size(1)), a.H = int(q->size(2));
        a.Q = rows("q", *q, type, {a.B, a.Nq, a.H, a.d});
        a.rotated_Q = rows("rotated_q", *rotated_q, type, q->sizes());
    }
    a.dtype = dtype_of(k), a.interleaved = interleaved, a.causal = causal;
    const Tensor lengths = at::empty({a.B}, k.options().dtype(at::kInt));
    a.new_lengths = static_cast<int*>(lengths.data_ptr());
    on_device_of("k", k, backend, [&](const std::string& on, std::uintptr_t stream) {
        ladder::python::append(a, on, stream);
    });
    std::vector<Tensor> changed{k_cache, v_cache};  // which autograd may have saved
    if (of_tokens) changed.insert(changed.end(), {*k_scale, *v_scale});
    for (const Tensor& x : changed) {
        if (!x.is_inference()) x.unsafeGetTensorImpl()->bump_version();
    }
    return lengths;
}

/// As kernels read it. Autograd makes a gradient, and may lay it out as no kernel takes it: that of a sum is
/// one number, expanded; that of a part of a row begins anywhere.
Tensor readable(const Tensor& x) {
    const auto strides = x.strides();
    const bool is = address(x) % 16 == 0 && strides[3] == 1 &&
                    std::all_of(strides.begin(), strides.begin() + 3,
                                [](std::int64_t stride) { return stride % 8 == 0; });
    return is ? x : x.clone(at::MemoryFormat::Contiguous);
}

/// dQ, dK and dV, and with sinks dsinks (H), fp32.
std::vector<Tensor> attention_backward(const Tensor& Q, const Tensor& K, const Tensor& V, const Tensor& O,
                                       const Tensor& L, const Tensor& dO, bool causal, at::TensorList arrays,
                                       c10::SymIntArrayRef integers, at::ArrayRef<double> reals, Names names,
                                       Scale scale, Word stage, c10::string_view backend) {
    require_agreement({{"Q", Q}, {"K", K}, {"V", V}, {"O", O}, {"dO", dO}});
    TORCH_CHECK_TYPE(L.scalar_type() == at::kFloat, "L is ", dtype_name(L), "; expected float32");
    TORCH_CHECK_VALUE(L.sizes() == Q.sizes().slice(0, 3), "L is ", axes_text(L.sizes()), "; expected ",
                      axes_text(Q.sizes().slice(0, 3)), ", the first axes of Q");
    TORCH_CHECK_VALUE(L.device() == Q.device(), "L is on ", L.device(), " and Q on ", Q.device(),
                      ": they must agree");
    for (const auto& [name, x] : {std::pair("O", O), std::pair("dO", dO)}) {
        TORCH_CHECK_VALUE(x.sizes() == Q.sizes(), name, " is ", axes_text(x.sizes()), " and Q is ",
                          axes_text(Q.sizes()), ": they must agree");
    }
    const Named given{causal, arrays, integers, reals, names};
    Tensor dQ, dK, dV, dsinks;
    if (given.array("sinks")) dsinks = at::empty({Q.size(1)}, L.options());
    const Tensor l = L.contiguous();
    with_kernel(false, stage, backend, Q, K, V, given,
                [&](auto& kernel, std::int64_t width, const Mask& mask, std::uintptr_t workspace,
                    std::uintptr_t stream) {
                    const Tensor q = widened(Q, width), k = widened(K, width), v = widened(V, width),
                                 o = widened(O, width), d_o = readable(widened(dO, width)), d_q = empty_as(q),
                                 d_k = empty_as(k), d_v = empty_as(v);
                    kernel.backward(place(q), place(k), place(v), place(o), address(l), place(d_o),
                                    place(d_q), place(d_k), place(d_v), address(dsinks), dtype_of(Q), mask,
                                    scale.value_or(default_scale(Q)), workspace, stream);
                    dQ = narrowed(d_q, Q), dK = narrowed(d_k, K), dV = narrowed(d_v, V);
                });
    if (!dsinks.defined()) return {dQ, dK, dV};
    return {dQ, dK, dV, dsinks};
}

/// The operator of this name, the only one of this type, by way of the dispatcher: a tracer of a call
/// sees it.
template <class F>
const auto& dispatched(const char* name) {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<F>();
    return op;
}

/// attention() without gradients.
std::tuple<Tensor, Tensor> below_autograd(const Tensor& Q, const Tensor& K, const Tensor& V,
                                          const Named& given, Scale scale, Word stage, Word backward_stage,
                                          c10::string_view backend) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return dispatched<decltype(attention)>("flash_ladder::attention")
        .call(Q, K, V, given.causal, given.arrays, given.integers, given.reals, given.names, scale, stage,
              backward_stage, backend);
}

struct Attention : torch::autograd::Function<Attention> {
    using Rest = std::tuple<bool, std::vector<double>, Names, Scale, std::optional<std::string>, std::string>;
    static constexpr std::size_t arguments = 9;    // of forward()
    static constexpr std::size_t first_array = 5;  // of the tensors that are saved

    /// Of the tensors in `given` only the sinks, if there are any, get a gradient: autograd is to see them.
    static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const Tensor& Q,
                                                  const Tensor& K, const Tensor& V,
                                                  const std::optional<Tensor>& /*sinks*/, const Named& given,
                                                  Scale scale, Word stage, Word backward_stage,
                                                  c10::string_view backend) {
        const auto [O, L] = below_autograd(Q, K, V, given, scale, stage, backward_stage, backend);
        torch::autograd::variable_list saved{Q, K, V, O, L};
        saved.insert(saved.end(), given.arrays.begin(), given.arrays.end());
        ctx->save_for_backward(std::move(saved));
        ctx->saved_data["integers"] = given.integers;
        ctx->saved_data["rest"] = Rest(given.causal, given.reals.vec(), given.names, scale,
                                       text(backward_stage), std::string(backend));
        ctx->mark_non_differentiable({L});
        ctx->set_materialize_grads(false);  // no kernel that fills a gradient of L with zeros
        return {O, L};
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                   const torch::autograd::variable_list& of_outputs) {
        if (!of_outputs[0].defined()) return torch::autograd::variable_list(arguments);
        const auto saved = ctx->get_saved_variables();
        const auto integers = ctx->saved_data["integers"].toSymIntVector();
        const auto [causal, reals, names, scale, stage, backend] = ctx->saved_data["rest"].to<Rest>();
        auto gradients = dispatched<decltype(attention_backward)>("flash_ladder::attention_backward")
                             .call(saved[0], saved[1], saved[2], saved[3], saved[4], of_outputs[0], causal,
                                   at::TensorList(saved).slice(first_array), integers, reals, names, scale,
                                   stage ? Word(*stage) : Word(), backend);
        gradients.resize(arguments);
        return gradients;
    }
};

std::tuple<Tensor, Tensor> with_gradients(const Tensor& Q, const Tensor& K, const Tensor& V, bool causal,
                                          at::TensorList arrays, c10::SymIntArrayRef integers,
                                          at::ArrayRef<double> reals, Names names, Scale scale, Word stage,
                                          Word backward_stage, c10::string_view backend) {
    const auto is_dual = [](const Tensor& x) { return x._fw_grad(0).defined(); };
    TORCH_CHECK_NOT_IMPLEMENTED(
        !is_dual(Q) && !is_dual(K) && !is_dual(V) && std::none_of(arrays.begin(), arrays.end(), is_dual),
        "flash_ladder::attention has no derivatives in forward mode");
    const Named given{causal, arrays, integers, reals, names};
    const std::optional<Tensor> sinks = given.array("sinks");
    for (std::size_t i = 0; i < arrays.size() && i < names.size() && at::GradMode::is_enabled(); ++i) {
        const std::string name = names[i];
        TORCH_CHECK_TYPE(name == "sinks" || !arrays[i].requires_grad(), name,
                         " requires a gradient, and none flows to it");
    }
    if (!at::GradMode::is_enabled() ||
        !(Q.requires_grad() || K.requires_grad() || V.requires_grad() || (sinks && sinks->requires_grad())))
        return below_autograd(Q, K, V, given, scale, stage, backward_stage, backend);
    const auto outputs = Attention::apply(Q, K, V, sinks, given, scale, stage, backward_stage, backend);
    return {outputs[0], outputs[1]};
}

TORCH_LIBRARY(flash_ladder, m) {
    m.set_python_module("flash_ladder.torch");  // which has what they return, without running them
    // What else a call is given: see Named.
    const std::string rest =
        "bool causal, Tensor[] arrays, SymInt[] integers, float[] reals, str[] names, "
        "float? scale, str? stage, ";
    const auto define = [&](const std::string& schema) {
        m.def(schema.c_str(), {at::Tag::pt2_compliant_tag});
    };
    define("attention(Tensor q, Tensor k, Tensor v, " + rest +
           "str? backward_stage, str backend) -> (Tensor, Tensor)");
    define("attention_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor do, " + rest +
           "str backend) -> Tensor[]");
    define("decode(Tensor q, Tensor k, Tensor v, " + rest + "str backend) -> (Tensor, Tensor)");
    define(
        "append(Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor(c!)? rotated_q, Tensor k, Tensor v, Tensor? "
        "q, "
        "Tensor? cos, Tensor? sin, Tensor seqused, Tensor? batch_index, Tensor? block_table, Tensor(d!)? "
        "k_scale, "
        "Tensor(e!)? v_scale, bool interleaved, bool causal, str backend) -> Tensor");
}
TORCH_LIBRARY_IMPL(flash_ladder, CPU, m) {
    m.impl("attention", attention);
    m.impl("attention_backward", attention_backward);
    m.impl("decode", decode);
    m.impl("append", append);
}
TORCH_LIBRARY_IMPL(flash_ladder, CUDA, m) {
    m.impl("attention", attention);
    m.impl("attention_backward", attention_backward);
    m.impl("decode", decode);
    m.impl("append", append);
}
TORCH_LIBRARY_IMPL(flash_ladder, Autograd, m) {
    m.impl("attention", with_gradients);
    for (const char* name : {"attention_backward", "decode", "append"})
        m.impl(name, torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
