// reclane.hpp: C++17 over reclane.h. Header only; adds no symbol to the library and hides nothing of it.
//
// Handles are move-only objects that close themselves. A call that can fail returns a Result<T>: test it, then use it.
//
//     auto client = reclane::Client::open(options);
//     if (!client) return complain(client.error().message());
//     auto got = client->get(table, keys, rows);
//
// Nothing throws, unless RECLANE_EXCEPTIONS is defined before the header is included: then value() of a Result that is
// an error throws reclane::Failure. Otherwise it says on standard error what failed, and aborts the process. Thread
// rules, units and lifetimes are those of reclane.h; each method names its C function.

#ifndef RECLANE_RECLANE_HPP
#define RECLANE_RECLANE_HPP

#include <reclane/reclane.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#ifdef RECLANE_EXCEPTIONS
#include <stdexcept>
#define RECLANE_FLAVOUR throwing
#else
#define RECLANE_FLAVOUR plain
#endif

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#define RECLANE_TRY try
#define RECLANE_CATCH catch (...)
#else
#define RECLANE_TRY if (true)
#define RECLANE_CATCH else
#endif

namespace reclane {
// Programs whose files disagree about RECLANE_EXCEPTIONS get different types, not one with two meanings.
inline namespace RECLANE_FLAVOUR {

using Status = reclane_status;
using StatusClass = reclane_class;

// A pointer and a length; owns nothing. Converts from anything with data() and size(), and from arrays.
template <class T>
struct Span {
    T* first = nullptr;
    std::size_t count = 0;

    constexpr Span() noexcept = default;
    constexpr Span(T* data, std::size_t size) noexcept : first(data), count(size) {}
    // {0, 2} would be a null pointer and a length, and not the two keys that are meant: give an array or a container.
    template <class Number, class = std::enable_if_t<std::is_integral_v<Number>>>
    constexpr Span(Number, std::size_t) = delete;
    template <std::size_t N>
    constexpr Span(T (&array)[N]) noexcept : first(array), count(N) {}
    template <class C, class P = decltype(std::declval<C&>().data()), class N = decltype(std::declval<C&>().size()),
              class = std::enable_if_t<std::is_convertible_v<std::remove_pointer_t<P> (*)[], T (*)[]>>>
    constexpr Span(C&& container) noexcept : first(container.data()), count(container.size()) {}

    constexpr T* data() const noexcept { return first; }
    constexpr std::size_t size() const noexcept { return count; }
    constexpr bool empty() const noexcept { return count == 0; }
    constexpr T* begin() const noexcept { return first; }
    constexpr T* end() const noexcept { return first + count; }
    constexpr T& operator[](std::size_t i) const noexcept { return first[i]; }
};

// What went wrong in one call: reclane_error with names.
class Error {
public:
    Error() noexcept {
        raw_.struct_size = static_cast<std::uint32_t>(sizeof raw_);
        raw_.status = RECLANE_STATUS_OK;
    }
    Error(const Error& other) noexcept { *this = other; }
    Error& operator=(const Error& other) noexcept {
        // The other fields are set only when there was a failure.
        if (other.raw_.status < 0) {
            std::memcpy(&raw_, &other.raw_, sizeof raw_);
        } else {
            raw_.struct_size = other.raw_.struct_size;
            raw_.status = other.raw_.status;
        }
        return *this;
    }

    Status status() const noexcept { return static_cast<Status>(raw_.status); }
    StatusClass status_class() const noexcept { return reclane_status_class(raw_.status); }
    const char* name() const noexcept { return reclane_status_name(raw_.status); }
    const char* message() const noexcept { return raw_.status < 0 ? raw_.message : ""; }
    // Whether the request was executed, as far as it is known.
    reclane_outcome outcome() const noexcept {
        return raw_.status < 0 ? static_cast<reclane_outcome>(raw_.outcome) : RECLANE_OUTCOME_EXECUTED;
    }
    // Everything. Only status and struct_size are set when there was no failure.
    const reclane_error& raw() const noexcept { return raw_; }
    reclane_error* out() noexcept { return &raw_; }

    // The status that a call returned. Calls that could not even fill the struct get a message here.
    void settle(Status status) noexcept {
        if (status < 0 && raw_.status != status) {
            const std::uint32_t size = raw_.struct_size;
            raw_ = reclane_error{};
            raw_.struct_size = size;
            raw_.shard = raw_.lane = raw_.slot = RECLANE_NONE;
            (void)std::snprintf(
                raw_.message, sizeof raw_.message,
                "the library could not say why: header and library may differ, see reclane_abi_check()");
        }
        raw_.status = status;
    }
    // A failure that is found in this header, before the library is called.
    void refuse(Status status, const char* message) noexcept {
        settle(status);
        raw_.layer = RECLANE_LAYER_USAGE;
        raw_.outcome = RECLANE_OUTCOME_NOT_EXECUTED;
        (void)std::snprintf(raw_.message, sizeof raw_.message, "%s", message);
    }

private:
    reclane_error raw_;
};

#ifdef RECLANE_EXCEPTIONS
// What Result::value() throws.
class Failure : public std::runtime_error {
public:
    explicit Failure(const Error& error)
        : std::runtime_error(std::string(error.name()) + ": " + error.message()), error_(error) {}
    const Error& error() const noexcept { return error_; }

private:
    Error error_;
};
#endif

// A value or an error.
template <class T>
class [[nodiscard]] Result;

template <>
class [[nodiscard]] Result<void> {
public:
    bool ok() const noexcept { return error_.status() >= 0; }
    explicit operator bool() const noexcept { return ok(); }
    // Also tells RECLANE_STATUS_PENDING from RECLANE_STATUS_OK.
    Status status() const noexcept { return error_.status(); }
    const Error& error() const noexcept { return error_; }
    // Does nothing when the call succeeded. Otherwise throws Failure, or without RECLANE_EXCEPTIONS prints the status
    // and the message to standard error and aborts.
    void value() const {
        if (!ok())
            fail();
    }

    // For the wrappers below: where the call writes, and what it returned.
    reclane_error* out() noexcept { return error_.out(); }
    void settle(Status status) noexcept { error_.settle(status); }
    void refuse(Status status, const char* message) noexcept { error_.refuse(status, message); }

protected:
    [[noreturn]] void fail() const {
#ifdef RECLANE_EXCEPTIONS
        throw Failure(error_);
#else
        std::fprintf(stderr, "reclane: value() of a call that failed: %s: %s\n", error_.name(), error_.message());
        std::abort();
#endif
    }

private:
    Error error_;
};

template <class T>
class [[nodiscard]] Result : public Result<void> {
public:
    T& value() & {
        if (!ok())
            fail();
        return value_;
    }
    const T& value() const& {
        if (!ok())
            fail();
        return value_;
    }
    T&& value() && {
        if (!ok())
            fail();
        return std::move(value_);
    }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }

    // For the wrappers below: the place of the value, whether or not there is one.
    T& place() noexcept { return value_; }

private:
    T value_{};
};

namespace detail {

// A handle that closes itself.
template <class Raw, void (*Close)(Raw*)>
class Handle {
public:
    Handle() noexcept = default;
    explicit Handle(Raw* raw) noexcept : raw_(raw) {}
    Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Handle& operator=(Handle&& other) noexcept {
        if (this != &other) {
            Close(raw_);
            raw_ = std::exchange(other.raw_, nullptr);
        }
        return *this;
    }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() { Close(raw_); }

    // For the C functions; NULL when empty.
    Raw* raw() const noexcept { return raw_; }
    Raw** out() noexcept { return &raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }
    void close() noexcept { Close(std::exchange(raw_, nullptr)); }
    // Gives the handle away unclosed.
    Raw* release() noexcept { return std::exchange(raw_, nullptr); }

private:
    Raw* raw_ = nullptr;
};

// A text of unknown length from `call(buffer, capacity, length*, error*)`.
template <class Call>
Result<std::string> text_of(Call&& call) {
    Result<std::string> result;
    std::size_t length = 0;
    std::string& text = result.place();
    // Numbers grow between two calls: a little room more than was asked for.
    for (int attempt = 0; attempt < 4; ++attempt) {
        text.resize(length + 64);
        const Status status = call(text.data(), text.size(), &length, result.out());
        result.settle(status);
        if (status != RECLANE_STATUS_BUFFER_TOO_SMALL)
            break;
    }
    text.resize(length);
    return result;
}

}  // namespace detail

// reclane_version()
inline const char* version() noexcept {
    return reclane_version();
}
// reclane_version_number()
inline std::uint32_t version_number() noexcept {
    return reclane_version_number();
}
// reclane_abi_version()
inline std::uint32_t abi_version() noexcept {
    return reclane_abi_version();
}
// reclane_abi_check() with the number of this header
inline Result<void> abi_check(std::uint32_t abi_version = RECLANE_ABI_VERSION) noexcept {
    Result<void> result;
    result.settle(reclane_abi_check(abi_version, result.out()));
    return result;
}

// A bag of named options.
class Options : public detail::Handle<reclane_options, reclane_options_close> {
public:
    using Handle::Handle;

    // reclane_options_open()
    static Result<Options> open() noexcept {
        Result<Options> result;
        result.settle(reclane_options_open(result.place().out(), result.out()));
        return result;
    }
    // reclane_options_set()
    Result<void> set(const char* name, const char* value) noexcept {
        Result<void> result;
        result.settle(reclane_options_set(raw(), name, value, result.out()));
        return result;
    }
    Result<void> set(const std::string& name, const std::string& value) noexcept {
        return set(name.c_str(), value.c_str());
    }
    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
    Result<void> set(const char* name, Number value) {
        if constexpr (std::is_same_v<Number, bool>) {
            return set(name, value ? "true" : "false");
        } else {
            return set(name, std::to_string(value).c_str());
        }
    }
    template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
    Result<void> set(const std::string& name, Number value) {
        return set(name.c_str(), value);
    }
    // reclane_options_set_flag()
    Result<void> set_flag(const std::string& flag) noexcept {
        Result<void> result;
        result.settle(reclane_options_set_flag(raw(), flag.c_str(), result.out()));
        return result;
    }
    // reclane_options_server_workers()
    Result<std::uint32_t> server_workers() const noexcept {
        Result<std::uint32_t> result;
        result.settle(reclane_options_server_workers(raw(), &result.place(), result.out()));
        return result;
    }
    // reclane_options_get()
    Result<std::string> get(const std::string& name) const {
        return detail::text_of([&](char* buffer, std::size_t capacity, std::size_t* length, reclane_error* error) {
            return reclane_options_get(raw(), name.c_str(), buffer, capacity, length, error);
        });
    }
};

namespace detail {

// Bytes that a call writes to a buffer, whose length it tells.
template <class Call>
Result<std::string> bytes_of(Call call) {
    Result<std::string> result;
    std::size_t length = 0;
    std::string& bytes = result.place();
    for (int attempt = 0; attempt < 2; ++attempt) {
        bytes.resize(length);
        const Status status = call(bytes.data(), bytes.size(), &length, result.out());
        result.settle(status);
        if (status != RECLANE_STATUS_BUFFER_TOO_SMALL)
            break;
    }
    return result;
}

}  // namespace detail

// How often to take a checkpoint.
struct CheckpointAdvice {
    // Time between two checkpoints.
    std::uint64_t interval_ns = 0;
    // The part of the time that is lost then.
    double lost = 0;
};

// reclane_checkpoint_advise(); struct_size is set here
inline Result<CheckpointAdvice> checkpoint_advise(reclane_checkpoint_cost cost) noexcept {
    Result<CheckpointAdvice> result;
    cost.struct_size = static_cast<std::uint32_t>(sizeof cost);
    result.settle(reclane_checkpoint_advise(&cost, &result.place().interval_ns, &result.place().lost, result.out()));
    return result;
}

// A checkpoint that was found whole; see reclane_restore_open().
class Restore : public detail::Handle<reclane_restore, reclane_restore_close> {
public:
    using Handle::Handle;

    // reclane_restore_open(); epoch 0: the newest that is whole
    static Result<Restore> open(const std::string& directory, std::uint64_t epoch = 0) noexcept {
        Result<Restore> result;
        result.settle(reclane_restore_open(directory.c_str(), epoch, result.place().out(), result.out()));
        return result;
    }
    // reclane_restore_describe()
    Result<reclane_restore_info> describe() const noexcept {
        Result<reclane_restore_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_restore_info));
        result.settle(reclane_restore_describe(raw(), &result.place(), result.out()));
        return result;
    }
    // reclane_restore_refused(): why a newer one was passed over; index below describe().refused
    Result<std::string> refused(std::uint32_t index) const {
        return detail::text_of([&](char* buffer, std::size_t capacity, std::size_t* length, reclane_error* error) {
            return reclane_restore_refused(raw(), index, nullptr, buffer, capacity, length, error);
        });
    }
    // reclane_restore_section()
    Result<std::string> section(const std::string& name) const {
        return detail::bytes_of([&](char* buffer, std::size_t capacity, std::size_t* length, reclane_error* error) {
            return reclane_restore_section(raw(), name.c_str(), buffer, capacity, length, error);
        });
    }
    // reclane_restore_region(): the whole region
    Result<std::string> region(std::uint32_t rank, std::uint32_t region) const {
        return detail::bytes_of([&](char* buffer, std::size_t capacity, std::size_t* length, reclane_error* error) {
            std::uint64_t bytes = 0;
            const Status status = reclane_restore_region(raw(), rank, region, 0, buffer, capacity, &bytes, error);
            *length = static_cast<std::size_t>(bytes);
            return status == RECLANE_STATUS_OK && bytes > capacity ? RECLANE_STATUS_BUFFER_TOO_SMALL : status;
        });
    }
    // reclane_restore_apply()
    Result<void> apply(Options& options) const noexcept {
        Result<void> result;
        result.settle(reclane_restore_apply(raw(), options.raw(), result.out()));
        return result;
    }
};

// A storage engine of the host: derive, override, hand to Server::open(). The methods are called on the server's
// threads, many at once; `worker` is distinct among concurrent calls and below Options::server_workers(). They answer a
// reclane_answer. An exception that leaves one becomes RECLANE_ANSWER_INTERNAL_ERROR and the server lives on.
class Store {
public:
    struct Region {
        const void* base = nullptr;
        std::uint64_t bytes = 0;
    };
    // Rows that a client sent: row i at first + i * stride_bytes, dim floats each.
    struct Rows {
        const float* first;
        std::size_t stride_bytes;
        std::uint32_t dim;
        const float* operator[](std::size_t i) const noexcept {
            return reinterpret_cast<const float*>(reinterpret_cast<const char*>(first) + i * stride_bytes);
        }
    };

    Store() = default;
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    virtual ~Store() = default;

    // Creates a table or finds the same one again; writes its number, 0..65535.
    virtual int init_table(std::uint32_t worker, const reclane_table_options& options, std::uint32_t& table) = 0;
    // Writes the floats per row; must be quick.
    virtual int table_shape(std::uint32_t table, std::uint32_t& dim) = 0;
    // Writes keys.size() rows of dim floats; a missing key gives zeroes and counts in missing_rows.
    virtual int get_flat(std::uint32_t worker, std::uint32_t table, Span<const std::uint64_t> keys, float* rows,
                         std::uint32_t dim, std::uint32_t& missing_rows) = 0;
    virtual int put(std::uint32_t worker, std::uint32_t table, Span<const std::uint64_t> keys, Rows rows) {
        (void)worker, (void)table, (void)keys, (void)rows;
        return RECLANE_ANSWER_INTERNAL_ERROR;
    }
    virtual int update(std::uint32_t worker, std::uint32_t table, Span<const std::uint64_t> keys, Rows gradients) {
        (void)worker, (void)table, (void)keys, (void)gradients;
        return RECLANE_ANSWER_INTERNAL_ERROR;
    }
    virtual int update_flat(std::uint32_t worker, std::uint32_t table, Span<const std::uint64_t> keys, Rows gradients) {
        return update(worker, table, keys, gradients);
    }
    virtual int command(std::uint32_t worker, reclane_command command, const char* argument) {
        (void)worker, (void)command, (void)argument;
        return RECLANE_ANSWER_INTERNAL_ERROR;
    }
    virtual void prefetch(std::uint32_t table, Span<const std::uint64_t> keys) { (void)table, (void)keys; }
    // The region of all rows that pin_rows() names. An empty one: rows are copied, pin_rows() is never called.
    virtual Region backing() const { return {}; }
    virtual int pin_rows(std::uint32_t worker, std::uint32_t table, Span<const std::uint64_t> keys, reclane_row* rows,
                         std::uint32_t dim, std::uint64_t& pin) {
        (void)worker, (void)table, (void)keys, (void)rows, (void)dim, (void)pin;
        return RECLANE_ANSWER_INTERNAL_ERROR;
    }
    virtual void unpin_rows(std::uint32_t worker, std::uint64_t pin) { (void)worker, (void)pin; }

    // The C face of a store. Who gets RECLANE_STATUS_OK from reclane_server_open() with it has given the store away.
    static reclane_store face(Store* store) {
        reclane_store face{};
        face.struct_size = static_cast<std::uint32_t>(sizeof face);
        face.user_data = store;
        face.drop_user_data = on_drop;
        face.init_table = on_init_table;
        face.table_shape = on_table_shape;
        face.get_flat = on_get_flat;
        face.put = on_put;
        face.update = on_update;
        face.update_flat = on_update_flat;
        face.command = on_command;
        face.prefetch = on_prefetch;
        const Region region = store->backing();
        if (region.base != nullptr) {
            face.pin_rows = on_pin_rows;
            face.unpin_rows = on_unpin_rows;
            face.backing_base = region.base;
            face.backing_bytes = region.bytes;
        }
        return face;
    }

private:
    template <class F>
    static int guarded(F&& body) noexcept {
        RECLANE_TRY {
            return body();
        }
        RECLANE_CATCH {
            return RECLANE_ANSWER_INTERNAL_ERROR;
        }
    }
    template <class F>
    static void guarded_void(F&& body) noexcept {
        RECLANE_TRY {
            body();
        }
        RECLANE_CATCH {}
    }
    static Store& self(void* user_data) noexcept { return *static_cast<Store*>(user_data); }

    static void on_drop(void* user_data) noexcept {
        guarded_void([&] { delete static_cast<Store*>(user_data); });
    }
    static int on_init_table(void* user_data, std::uint32_t worker, const reclane_table_options* options,
                             std::uint32_t* table) noexcept {
        return guarded([&] { return self(user_data).init_table(worker, *options, *table); });
    }
    static int on_table_shape(void* user_data, std::uint32_t table, std::uint32_t* dim) noexcept {
        return guarded([&] { return self(user_data).table_shape(table, *dim); });
    }
    static int on_get_flat(void* user_data, std::uint32_t worker, std::uint32_t table, const std::uint64_t* keys,
                           std::size_t key_count, float* rows, std::uint32_t dim,
                           std::uint32_t* missing_rows) noexcept {
        return guarded([&] {
            return self(user_data).get_flat(worker, table, {keys, key_count}, rows, dim, *missing_rows);
        });
    }
    static int on_put(void* user_data, std::uint32_t worker, std::uint32_t table, const std::uint64_t* keys,
                      std::size_t key_count, const float* rows, std::size_t stride_bytes, std::uint32_t dim) noexcept {
        return guarded([&] {
            return self(user_data).put(worker, table, {keys, key_count}, {rows, stride_bytes, dim});
        });
    }
    static int on_update(void* user_data, std::uint32_t worker, std::uint32_t table, const std::uint64_t* keys,
                         std::size_t key_count, const float* rows, std::size_t stride_bytes,
                         std::uint32_t dim) noexcept {
        return guarded([&] {
            return self(user_data).update(worker, table, {keys, key_count}, {rows, stride_bytes, dim});
        });
    }
    static int on_update_flat(void* user_data, std::uint32_t worker, std::uint32_t table, const std::uint64_t* keys,
                              std::size_t key_count, const float* rows, std::size_t stride_bytes,
                              std::uint32_t dim) noexcept {
        return guarded([&] {
            return self(user_data).update_flat(worker, table, {keys, key_count}, {rows, stride_bytes, dim});
        });
    }
    static int on_command(void* user_data, std::uint32_t worker, std::uint32_t command, const char* argument) noexcept {
        return guarded(
            [&] { return self(user_data).command(worker, static_cast<reclane_command>(command), argument); });
    }
    static void on_prefetch(void* user_data, std::uint32_t table, const std::uint64_t* keys,
                            std::size_t key_count) noexcept {
        guarded_void([&] { self(user_data).prefetch(table, {keys, key_count}); });
    }
    static int on_pin_rows(void* user_data, std::uint32_t worker, std::uint32_t table, const std::uint64_t* keys,
                           std::size_t key_count, reclane_row* rows, std::uint32_t dim, std::uint64_t* pin) noexcept {
        return guarded([&] { return self(user_data).pin_rows(worker, table, {keys, key_count}, rows, dim, *pin); });
    }
    static void on_unpin_rows(void* user_data, std::uint32_t worker, std::uint64_t pin) noexcept {
        guarded_void([&] { self(user_data).unpin_rows(worker, pin); });
    }
};

// State of the host program in checkpoints: derive, override, hand to Server::open(); it must outlive the server. The
// methods are called on a thread of the server, one at a time. Those that return an int answer 0 when done; an
// exception that leaves one counts as RECLANE_ANSWER_INTERNAL_ERROR. See reclane_state.
class State {
public:
    // A piece of what was saved: bytes from offset on of the total bytes that a shard had.
    struct Piece {
        std::uint32_t shard;
        std::uint32_t shards;
        std::uint64_t total;
        std::uint64_t offset;
        const void* bytes;
        std::size_t count;
    };

    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    virtual ~State() = default;

    // Keeps the state as it is now, and writes how many bytes it takes. Requests wait.
    virtual int freeze(std::uint64_t epoch, std::uint64_t& bytes) = 0;
    // Writes count bytes from offset on of what was frozen.
    virtual int save(std::uint64_t offset, void* buffer, std::size_t count) = 0;
    // What was frozen is not needed any more.
    virtual void release(std::uint64_t epoch, bool committed) = 0;
    // Takes a piece back.
    virtual int load(const Piece& piece) = 0;

    // The C face of a state.
    static reclane_state face(State* state) {
        reclane_state face{};
        face.struct_size = static_cast<std::uint32_t>(sizeof face);
        face.user_data = state;
        face.freeze = on_freeze;
        face.save = on_save;
        face.release = on_release;
        face.load = on_load;
        return face;
    }

private:
    template <class F>
    static int guarded(F&& body) noexcept {
        RECLANE_TRY {
            return body();
        }
        RECLANE_CATCH {
            return RECLANE_ANSWER_INTERNAL_ERROR;
        }
    }
    static State& self(void* user_data) noexcept { return *static_cast<State*>(user_data); }

    static int on_freeze(void* user_data, std::uint64_t epoch, std::uint64_t* bytes) noexcept {
        return guarded([&] { return self(user_data).freeze(epoch, *bytes); });
    }
    static int on_save(void* user_data, std::uint64_t offset, void* buffer, std::size_t count) noexcept {
        return guarded([&] { return self(user_data).save(offset, buffer, count); });
    }
    static void on_release(void* user_data, std::uint64_t epoch, int committed) noexcept {
        (void)guarded([&] {
            self(user_data).release(epoch, committed != 0);
            return 0;
        });
    }
    static int on_load(void* user_data, std::uint32_t shard, std::uint32_t shards, std::uint64_t total,
                       std::uint64_t offset, const void* buffer, std::size_t count) noexcept {
        return guarded([&] { return self(user_data).load({shard, shards, total, offset, buffer, count}); });
    }
};

// One shard inside this process.
class Server : public detail::Handle<reclane_server, reclane_server_close> {
public:
    using Handle::Handle;

    // reclane_server_open() with the built-in table
    static Result<Server> open(const Options& options) noexcept {
        Result<Server> result;
        result.settle(reclane_server_open(options.raw(), nullptr, result.place().out(), result.out()));
        return result;
    }
    // reclane_server_open() with a storage engine, which is given away only when the call succeeds.
    static Result<Server> open(const Options& options, std::unique_ptr<Store>&& store) {
        Result<Server> result;
        const reclane_store face = Store::face(store.get());
        result.settle(reclane_server_open(options.raw(), &face, result.place().out(), result.out()));
        if (result.ok())
            (void)store.release();
        return result;
    }
    // reclane_server_open_with_state() with the built-in table; state must outlive the server.
    static Result<Server> open(const Options& options, State& state) {
        Result<Server> result;
        const reclane_state kept = State::face(&state);
        result.settle(
            reclane_server_open_with_state(options.raw(), nullptr, &kept, result.place().out(), result.out()));
        return result;
    }
    // The same with a storage engine, which is given away only when the call succeeds.
    static Result<Server> open(const Options& options, std::unique_ptr<Store>&& store, State& state) {
        Result<Server> result;
        const reclane_store face = Store::face(store.get());
        const reclane_state kept = State::face(&state);
        result.settle(reclane_server_open_with_state(options.raw(), &face, &kept, result.place().out(), result.out()));
        if (result.ok())
            (void)store.release();
        return result;
    }
    // reclane_server_metrics_text()
    Result<std::string> metrics_text() const {
        return detail::text_of([&](char* buffer, std::size_t capacity, std::size_t* length, reclane_error* error) {
            return reclane_server_metrics_text(raw(), buffer, capacity, length, error);
        });
    }
    // reclane_server_metric()
    Result<std::uint64_t> metric(const std::string& name) const noexcept {
        Result<std::uint64_t> result;
        result.settle(reclane_server_metric(raw(), name.c_str(), &result.place(), result.out()));
        return result;
    }
    // reclane_server_latency(); op is "get", "put" or "update"
    Result<reclane_latency_info> latency(const std::string& op) const noexcept {
        Result<reclane_latency_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_latency_info));
        result.settle(reclane_server_latency(raw(), op.c_str(), &result.place(), result.out()));
        return result;
    }
    // reclane_server_metrics_port()
    Result<std::uint32_t> metrics_port() const noexcept {
        Result<std::uint32_t> result;
        result.settle(reclane_server_metrics_port(raw(), &result.place(), result.out()));
        return result;
    }
    // reclane_server_profile()
    Result<reclane_server_profile_counters> profile() const noexcept {
        Result<reclane_server_profile_counters> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_server_profile_counters));
        result.settle(reclane_server_profile(raw(), &result.place(), result.out()));
        return result;
    }
    // reclane_server_transport_profile()
    Result<reclane_transport_profile_counters> transport_profile() const noexcept {
        Result<reclane_transport_profile_counters> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_transport_profile_counters));
        result.settle(reclane_server_transport_profile(raw(), &result.place(), result.out()));
        return result;
    }
    // reclane_server_stop(); 0 is 10 s
    Result<void> stop(std::uint64_t timeout_ms = 0) noexcept {
        Result<void> result;
        result.settle(reclane_server_stop(raw(), timeout_ms, result.out()));
        return result;
    }
    // reclane_server_control_plane_port()
    Result<std::uint32_t> control_plane_port() const noexcept {
        Result<std::uint32_t> result;
        result.settle(reclane_server_control_plane_port(raw(), &result.place(), result.out()));
        return result;
    }
    // reclane_server_stats()
    Result<reclane_server_counters> stats() const noexcept {
        Result<reclane_server_counters> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_server_counters));
        result.settle(reclane_server_stats(raw(), &result.place(), result.out()));
        return result;
    }
};

// Rows of a GET in place.
struct BorrowedRows {
    const float* rows = nullptr;
    std::size_t ready = 0;
    std::size_t total = 0;
    bool complete() const noexcept { return ready == total; }
};

// A submitted request; revokes itself. Must not outlive its client.
class Request {
public:
    Request() noexcept = default;
    Request(reclane_client* client, reclane_request token) noexcept : client_(client), token_(token) {}
    Request(Request&& other) noexcept : client_(other.client_), token_(std::exchange(other.token_, 0)) {}
    Request& operator=(Request&& other) noexcept {
        if (this != &other) {
            drop();
            client_ = other.client_;
            token_ = std::exchange(other.token_, 0);
        }
        return *this;
    }
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;
    ~Request() { drop(); }

    // The number for the C functions; 0 when empty.
    reclane_request token() const noexcept { return token_; }
    explicit operator bool() const noexcept { return token_ != 0; }
    // Gives the number away; it must be revoked by hand.
    reclane_request release() noexcept { return std::exchange(token_, 0); }

    // reclane_client_query(): whether it has ended
    Result<bool> query() noexcept {
        Result<bool> result;
        if (refused(result))
            return result;
        result.settle(reclane_client_query(client_, token_, result.out()));
        result.place() = result.status() == RECLANE_STATUS_OK;
        return result;
    }
    // reclane_client_wait(): whether it has ended; always, unless an own timeout ran out. 0 is the option
    // rdma-wait-timeout-ms, after which the request fails.
    Result<bool> wait(std::uint64_t timeout_ms = 0) noexcept {
        Result<bool> result;
        if (refused(result))
            return result;
        result.settle(reclane_client_wait(client_, token_, timeout_ms, result.out()));
        result.place() = result.status() == RECLANE_STATUS_OK;
        return result;
    }
    // reclane_client_finish(): wait() and revoke() in one; false when an own timeout ran out, and the request goes on
    Result<bool> finish(std::uint64_t timeout_ms = 0) noexcept {
        Result<bool> result;
        if (refused(result))
            return result;
        result.settle(reclane_client_finish(client_, token_, timeout_ms, result.out()));
        result.place() = result.status() == RECLANE_STATUS_OK;
        if (result.status() != RECLANE_STATUS_PENDING && result.status() != RECLANE_STATUS_BUSY)
            token_ = 0;
        return result;
    }
    // reclane_client_borrow()
    Result<BorrowedRows> borrow() noexcept {
        Result<BorrowedRows> result;
        if (refused(result))
            return result;
        BorrowedRows& rows = result.place();
        result.settle(reclane_client_borrow(client_, token_, &rows.rows, &rows.ready, &rows.total, result.out()));
        return result;
    }
    // reclane_client_shard_result(): how the keys of one shard did, once the request has ended
    Result<reclane_shard_result> shard_result(std::uint32_t shard) noexcept {
        Result<reclane_shard_result> result;
        if (refused(result))
            return result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_shard_result));
        result.settle(reclane_client_shard_result(client_, token_, shard, &result.place(), result.out()));
        return result;
    }
    // reclane_client_key_outcomes(): a reclane_outcome for each key, once the request has ended
    Result<void> key_outcomes(Span<std::uint8_t> outcomes) noexcept {
        Result<void> result;
        if (refused(result))
            return result;
        result.settle(reclane_client_key_outcomes(client_, token_, outcomes.data(), outcomes.size(), result.out()));
        return result;
    }
    // reclane_client_revoke(); the destructor does it otherwise
    Result<void> revoke() noexcept {
        Result<void> result;
        if (refused(result))
            return result;
        result.settle(reclane_client_revoke(client_, token_, result.out()));
        if (result.status() != RECLANE_STATUS_BUSY)
            token_ = 0;
        return result;
    }

private:
    // Whether this names no request; then the result says so.
    bool refused(Result<void>& result) const noexcept {
        if (token_ != 0)
            return false;
        if (client_ == nullptr) {
            result.refuse(RECLANE_STATUS_NULL_POINTER, "this Request is empty: no submit call that succeeded gave it");
        } else {
            result.refuse(
                RECLANE_STATUS_STALE_TOKEN,
                "this Request is empty: its submit failed, or it was finished, revoked, released or moved away");
        }
        return true;
    }
    void drop() noexcept {
        if (token_ != 0)
            (void)reclane_client_revoke(client_, token_, nullptr);
        token_ = 0;
    }
    reclane_client* client_ = nullptr;
    reclane_request token_ = 0;
};

// Memory of the library that the fabric can reach.
class Buffer : public detail::Handle<reclane_buffer, reclane_buffer_close> {
public:
    using Handle::Handle;

    // reclane_buffer_data()
    void* data() const noexcept { return reclane_buffer_data(raw()); }
    // reclane_buffer_bytes()
    std::size_t bytes() const noexcept { return reclane_buffer_bytes(raw()); }
    Span<float> floats() const noexcept { return {static_cast<float*>(data()), bytes() / sizeof(float)}; }
};

// A region of this rank. Must be closed, or destroyed, before its bytes' last user is gone.
class Region : public detail::Handle<reclane_region, reclane_region_close> {
public:
    using Handle::Handle;

    // reclane_region_data()
    void* data() const noexcept { return reclane_region_data(raw()); }
    // reclane_region_bytes()
    std::size_t bytes() const noexcept { return reclane_region_bytes(raw()); }
    // The region as an array; a rest that is no whole T is left out.
    template <class T>
    Span<T> as() const noexcept {
        return {static_cast<T*>(data()), bytes() / sizeof(T)};
    }
};

// A place in the memory of a rank.
struct Place {
    std::uint32_t rank = 0;
    std::uint32_t region = 0;
    std::uint64_t offset = 0;
};

// One process of a job. Every method may run at the same time as every other.
class Rank : public detail::Handle<reclane_rank, reclane_rank_close> {
public:
    using Handle::Handle;

    // reclane_rank_open()
    static Result<Rank> open(const Options& options) noexcept {
        Result<Rank> result;
        result.settle(reclane_rank_open(options.raw(), result.place().out(), result.out()));
        return result;
    }
    // reclane_rank_describe()
    Result<reclane_rank_info> describe() const noexcept {
        Result<reclane_rank_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_rank_info));
        result.settle(reclane_rank_describe(raw(), &result.place(), result.out()));
        return result;
    }
    // reclane_rank_metrics_text()
    Result<std::string> metrics_text() const {
        return detail::text_of([&](char* buffer, std::size_t capacity, std::size_t* length, reclane_error* error) {
            return reclane_rank_metrics_text(raw(), buffer, capacity, length, error);
        });
    }
    // reclane_rank_metric()
    Result<std::uint64_t> metric(const std::string& name) const noexcept {
        Result<std::uint64_t> result;
        result.settle(reclane_rank_metric(raw(), name.c_str(), &result.place(), result.out()));
        return result;
    }
    // reclane_rank_metrics_port()
    Result<std::uint32_t> metrics_port() const noexcept {
        Result<std::uint32_t> result;
        result.settle(reclane_rank_metrics_port(raw(), &result.place(), result.out()));
        return result;
    }
    // reclane_rank_barrier(); 0 is 60 s
    Result<void> barrier(const std::string& name, std::uint64_t timeout_ms = 0) noexcept {
        Result<void> result;
        result.settle(reclane_rank_barrier(raw(), name.c_str(), timeout_ms, result.out()));
        return result;
    }
    // reclane_region_open()
    Result<Region> open_region(std::uint32_t id, std::size_t bytes, std::uint32_t rights = RECLANE_RIGHT_ALL) noexcept {
        Result<Region> result;
        result.settle(reclane_region_open(raw(), id, bytes, rights, result.place().out(), result.out()));
        return result;
    }
    // reclane_region_find(); 0 is 60 s
    Result<reclane_region_info> find_region(std::uint32_t peer, std::uint32_t region,
                                            std::uint64_t timeout_ms = 0) noexcept {
        Result<reclane_region_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_region_info));
        result.settle(reclane_region_find(raw(), peer, region, timeout_ms, &result.place(), result.out()));
        return result;
    }

    // reclane_rank_write()
    Result<void> write(Place to, const void* source, std::size_t bytes) noexcept {
        Result<void> result;
        result.settle(reclane_rank_write(raw(), to.rank, to.region, to.offset, source, bytes, result.out()));
        return result;
    }
    // reclane_rank_read()
    Result<void> read(Place from, void* target, std::size_t bytes) noexcept {
        Result<void> result;
        result.settle(reclane_rank_read(raw(), from.rank, from.region, from.offset, target, bytes, result.out()));
        return result;
    }
    // reclane_rank_fetch_add(): the old value
    Result<std::uint64_t> fetch_add(Place at, std::uint64_t add) noexcept {
        Result<std::uint64_t> result;
        result.settle(reclane_rank_fetch_add(raw(), at.rank, at.region, at.offset, add, &result.place(), result.out()));
        return result;
    }
    // reclane_rank_compare_swap(): the old value
    Result<std::uint64_t> compare_swap(Place at, std::uint64_t expect, std::uint64_t swap) noexcept {
        Result<std::uint64_t> result;
        result.settle(reclane_rank_compare_swap(raw(), at.rank, at.region, at.offset, expect, swap, &result.place(),
                                                result.out()));
        return result;
    }
    // reclane_rank_fetch_add_once(): the old value
    Result<std::uint64_t> fetch_add_once(Place at, std::uint64_t add) noexcept {
        Result<std::uint64_t> result;
        result.settle(
            reclane_rank_fetch_add_once(raw(), at.rank, at.region, at.offset, add, &result.place(), result.out()));
        return result;
    }
    // reclane_rank_compare_swap_once(): the old value
    Result<std::uint64_t> compare_swap_once(Place at, std::uint64_t expect, std::uint64_t swap) noexcept {
        Result<std::uint64_t> result;
        result.settle(reclane_rank_compare_swap_once(raw(), at.rank, at.region, at.offset, expect, swap,
                                                     &result.place(), result.out()));
        return result;
    }

    // reclane_rank_post()
    Result<reclane_ticket> post(std::uint32_t peer, Span<const reclane_operation> operations) noexcept {
        Result<reclane_ticket> result;
        result.settle(
            reclane_rank_post(raw(), peer, operations.data(), operations.size(), &result.place(), result.out()));
        return result;
    }
    // reclane_rank_wait(); 0 is 60 s
    Result<void> wait(reclane_ticket ticket, std::uint64_t timeout_ms = 0) noexcept {
        Result<void> result;
        result.settle(reclane_rank_wait(raw(), ticket, timeout_ms, result.out()));
        return result;
    }
    // reclane_rank_outcomes()
    Result<void> outcomes(reclane_ticket ticket, Span<std::uint32_t> known) noexcept {
        Result<void> result;
        result.settle(reclane_rank_outcomes(raw(), ticket, known.data(), known.size(), result.out()));
        return result;
    }
    // reclane_rank_flush(); 0 is 60 s
    Result<void> flush(std::uint32_t peer, std::uint64_t timeout_ms = 0) noexcept {
        Result<void> result;
        result.settle(reclane_rank_flush(raw(), peer, timeout_ms, result.out()));
        return result;
    }

    // reclane_rank_hold(); 0 is 60 s for both
    Result<std::uint64_t> hold(std::uint64_t drain_ms = 0, std::uint64_t lapse_ms = 0) noexcept {
        Result<std::uint64_t> result;
        result.settle(reclane_rank_hold(raw(), drain_ms, lapse_ms, &result.place(), result.out()));
        return result;
    }
    // reclane_rank_release()
    Result<void> release_hold(std::uint64_t hold) noexcept {
        Result<void> result;
        result.settle(reclane_rank_release(raw(), hold, result.out()));
        return result;
    }

    // reclane_rank_checkpoint(), without a section of the program; 0 is 60 s
    Result<std::uint64_t> checkpoint(std::uint64_t timeout_ms = 0) noexcept {
        Result<std::uint64_t> result;
        result.settle(reclane_rank_checkpoint(raw(), nullptr, timeout_ms, &result.place(), result.out()));
        return result;
    }
    // reclane_rank_checkpoint() with a section: any bytes, by name
    Result<std::uint64_t> checkpoint(const std::string& name, const std::string& bytes, std::uint64_t timeout_ms = 0,
                                     std::uint32_t flags = 0) noexcept {
        reclane_checkpoint_request request{};
        request.struct_size = static_cast<std::uint32_t>(sizeof request);
        request.flags = flags;
        request.section_name = name.c_str();
        request.section = bytes.data();
        request.section_bytes = bytes.size();
        Result<std::uint64_t> result;
        result.settle(reclane_rank_checkpoint(raw(), &request, timeout_ms, &result.place(), result.out()));
        return result;
    }
    // reclane_rank_checkpoint_begin()
    Result<std::uint64_t> checkpoint_begin(std::uint32_t flags = 0) noexcept {
        Result<std::uint64_t> result;
        result.settle(reclane_rank_checkpoint_begin(raw(), flags, &result.place(), result.out()));
        return result;
    }
    // reclane_rank_checkpoint_wait(); 0 is 600 s
    Result<reclane_checkpoint_info> checkpoint_wait(std::uint64_t number,
                                                    std::uint32_t state = RECLANE_CHECKPOINT_STATE_COMMITTED,
                                                    std::uint64_t timeout_ms = 0) noexcept {
        Result<reclane_checkpoint_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_checkpoint_info));
        result.settle(reclane_rank_checkpoint_wait(raw(), number, state, timeout_ms, &result.place(), result.out()));
        return result;
    }
    // reclane_rank_checkpoint_status()
    Result<reclane_checkpoint_info> checkpoint_status(std::uint64_t number) const noexcept {
        Result<reclane_checkpoint_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_checkpoint_info));
        result.settle(reclane_rank_checkpoint_status(raw(), number, &result.place(), result.out()));
        return result;
    }
    // reclane_rank_checkpoint_abort()
    Result<void> checkpoint_abort(std::uint64_t number) noexcept {
        Result<void> result;
        result.settle(reclane_rank_checkpoint_abort(raw(), number, result.out()));
        return result;
    }
    // reclane_rank_set_hooks(); struct_size is set here
    Result<void> set_hooks(reclane_rank_hooks hooks) noexcept {
        Result<void> result;
        hooks.struct_size = static_cast<std::uint32_t>(sizeof hooks);
        result.settle(reclane_rank_set_hooks(raw(), &hooks, result.out()));
        return result;
    }
    // reclane_rank_set_hooks() with nothing: takes the present ones away
    Result<void> clear_hooks() noexcept {
        Result<void> result;
        result.settle(reclane_rank_set_hooks(raw(), nullptr, result.out()));
        return result;
    }
    // reclane_rank_restored_section()
    Result<std::string> restored_section(const std::string& name) const {
        return detail::bytes_of([&](char* buffer, std::size_t capacity, std::size_t* length, reclane_error* error) {
            return reclane_rank_restored_section(raw(), name.c_str(), buffer, capacity, length, error);
        });
    }

    // reclane_rank_suspend(); 0 is 60 s
    Result<void> suspend(std::uint64_t timeout_ms = 0) noexcept {
        Result<void> result;
        result.settle(reclane_rank_suspend(raw(), timeout_ms, result.out()));
        return result;
    }
    // reclane_rank_resume(); 0 is 60 s
    Result<void> resume(std::uint64_t timeout_ms = 0) noexcept {
        Result<void> result;
        result.settle(reclane_rank_resume(raw(), timeout_ms, result.out()));
        return result;
    }
};

// A connection to all shards. Every method may run at the same time as every other.
class Client : public detail::Handle<reclane_client, reclane_client_close> {
public:
    using Handle::Handle;
    using Keys = Span<const std::uint64_t>;

    // reclane_client_open()
    static Result<Client> open(const Options& options) noexcept {
        Result<Client> result;
        result.settle(reclane_client_open(options.raw(), result.place().out(), result.out()));
        return result;
    }
    // reclane_client_open_from_environment()
    static Result<Client> open_from_environment() noexcept {
        Result<Client> result;
        result.settle(reclane_client_open_from_environment(result.place().out(), result.out()));
        return result;
    }
    // reclane_client_shutdown(); 0 is 10 s
    Result<void> shutdown(std::uint64_t timeout_ms = 0) noexcept {
        Result<void> result;
        result.settle(reclane_client_shutdown(raw(), timeout_ms, result.out()));
        return result;
    }

    // reclane_client_init_table(); struct_size is set here
    Result<std::uint32_t> init_table(reclane_table_options options) noexcept {
        Result<std::uint32_t> result;
        options.struct_size = static_cast<std::uint32_t>(sizeof options);
        result.settle(reclane_client_init_table(raw(), &options, &result.place(), result.out()));
        return result;
    }
    // reclane_client_command()
    Result<void> command(reclane_command command, const char* argument = nullptr) noexcept {
        Result<void> result;
        result.settle(reclane_client_command(raw(), command, argument, result.out()));
        return result;
    }
    // reclane_client_barrier(); 0 is 60 s
    Result<void> barrier(const std::string& name, std::uint32_t participants, std::uint64_t timeout_ms = 0) noexcept {
        Result<void> result;
        result.settle(reclane_client_barrier(raw(), name.c_str(), participants, timeout_ms, result.out()));
        return result;
    }
    // reclane_client_shard_of()
    Result<std::uint32_t> shard_of(std::uint64_t key) const noexcept {
        Result<std::uint32_t> result;
        result.settle(reclane_client_shard_of(raw(), key, &result.place(), result.out()));
        return result;
    }

    // reclane_client_get()
    Result<void> get(std::uint32_t table, Keys keys, Span<float> rows) noexcept {
        Result<void> result;
        result.settle(
            reclane_client_get(raw(), table, keys.data(), keys.size(), rows.data(), rows.size(), result.out()));
        return result;
    }
    // reclane_client_put()
    Result<void> put(std::uint32_t table, Keys keys, Span<const float> rows) noexcept {
        Result<void> result;
        result.settle(
            reclane_client_put(raw(), table, keys.data(), keys.size(), rows.data(), rows.size(), result.out()));
        return result;
    }
    // reclane_client_update(); gradients must have one pointer per key
    Result<void> update(std::uint32_t table, Keys keys, Span<const float* const> gradients) noexcept {
        Result<void> result;
        if (gradients.size() < keys.size())
            return too_few_pointers<Result<void>>(gradients.size(), keys.size());
        result.settle(reclane_client_update(raw(), table, keys.data(), keys.size(), gradients.data(), result.out()));
        return result;
    }
    // reclane_client_update_flat()
    Result<void> update_flat(std::uint32_t table, Keys keys, Span<const float> gradients) noexcept {
        Result<void> result;
        result.settle(reclane_client_update_flat(raw(), table, keys.data(), keys.size(), gradients.data(),
                                                 gradients.size(), result.out()));
        return result;
    }

    // reclane_client_submit_get(); rows must outlive the request
    Result<Request> submit_get(std::uint32_t table, Keys keys, Span<float> rows) noexcept {
        return submitted([&](reclane_request* token, reclane_error* error) {
            return reclane_client_submit_get(raw(), table, keys.data(), keys.size(), rows.data(), rows.size(), token,
                                             error);
        });
    }
    // reclane_client_submit_get_in_place()
    Result<Request> submit_get_in_place(std::uint32_t table, Keys keys) noexcept {
        return submitted([&](reclane_request* token, reclane_error* error) {
            return reclane_client_submit_get_in_place(raw(), table, keys.data(), keys.size(), token, error);
        });
    }
    // reclane_client_submit_get_into()
    Result<Request> submit_get_into(std::uint32_t table, Keys keys, const Buffer& buffer,
                                    std::size_t offset_bytes = 0) noexcept {
        return submitted([&](reclane_request* token, reclane_error* error) {
            return reclane_client_submit_get_into(raw(), table, keys.data(), keys.size(), buffer.raw(), offset_bytes,
                                                  token, error);
        });
    }
    // reclane_client_submit_put()
    Result<Request> submit_put(std::uint32_t table, Keys keys, Span<const float> rows) noexcept {
        return submitted([&](reclane_request* token, reclane_error* error) {
            return reclane_client_submit_put(raw(), table, keys.data(), keys.size(), rows.data(), rows.size(), token,
                                             error);
        });
    }
    // reclane_client_submit_put_from()
    Result<Request> submit_put_from(std::uint32_t table, Keys keys, const Buffer& buffer,
                                    std::size_t offset_bytes = 0) noexcept {
        return submitted([&](reclane_request* token, reclane_error* error) {
            return reclane_client_submit_put_from(raw(), table, keys.data(), keys.size(), buffer.raw(), offset_bytes,
                                                  token, error);
        });
    }
    // reclane_client_submit_update(); gradients must have one pointer per key
    Result<Request> submit_update(std::uint32_t table, Keys keys, Span<const float* const> gradients) noexcept {
        if (gradients.size() < keys.size())
            return too_few_pointers<Result<Request>>(gradients.size(), keys.size());
        return submitted([&](reclane_request* token, reclane_error* error) {
            return reclane_client_submit_update(raw(), table, keys.data(), keys.size(), gradients.data(), token, error);
        });
    }
    // reclane_client_submit_update_flat()
    Result<Request> submit_update_flat(std::uint32_t table, Keys keys, Span<const float> gradients) noexcept {
        return submitted([&](reclane_request* token, reclane_error* error) {
            return reclane_client_submit_update_flat(raw(), table, keys.data(), keys.size(), gradients.data(),
                                                     gradients.size(), token, error);
        });
    }
    // reclane_client_submit_update_flat_from()
    Result<Request> submit_update_flat_from(std::uint32_t table, Keys keys, const Buffer& buffer,
                                            std::size_t offset_bytes = 0) noexcept {
        return submitted([&](reclane_request* token, reclane_error* error) {
            return reclane_client_submit_update_flat_from(raw(), table, keys.data(), keys.size(), buffer.raw(),
                                                          offset_bytes, token, error);
        });
    }

    // reclane_buffer_open()
    Result<Buffer> buffer(std::size_t bytes) noexcept {
        Result<Buffer> result;
        result.settle(reclane_buffer_open(raw(), bytes, result.place().out(), result.out()));
        return result;
    }
    // reclane_client_lane()
    Result<reclane_lane_info> lane(std::uint32_t shard, std::uint32_t lane) const noexcept {
        Result<reclane_lane_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_lane_info));
        result.settle(reclane_client_lane(raw(), shard, lane, &result.place(), result.out()));
        return result;
    }
    // reclane_client_break_lane()
    Result<void> break_lane(std::uint32_t shard, std::uint32_t lane) noexcept {
        Result<void> result;
        result.settle(reclane_client_break_lane(raw(), shard, lane, result.out()));
        return result;
    }
    // reclane_client_health()
    Result<reclane_health_info> health(std::uint32_t shard) const noexcept {
        Result<reclane_health_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_health_info));
        result.settle(reclane_client_health(raw(), shard, &result.place(), result.out()));
        return result;
    }
    // reclane_client_metrics_text()
    Result<std::string> metrics_text() const {
        return detail::text_of([&](char* buffer, std::size_t capacity, std::size_t* length, reclane_error* error) {
            return reclane_client_metrics_text(raw(), buffer, capacity, length, error);
        });
    }
    // reclane_client_metric()
    Result<std::uint64_t> metric(const std::string& name) const noexcept {
        Result<std::uint64_t> result;
        result.settle(reclane_client_metric(raw(), name.c_str(), &result.place(), result.out()));
        return result;
    }
    // reclane_client_latency(); op is "get", "put" or "update"
    Result<reclane_latency_info> latency(const std::string& op) const noexcept {
        Result<reclane_latency_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_latency_info));
        result.settle(reclane_client_latency(raw(), op.c_str(), &result.place(), result.out()));
        return result;
    }
    // reclane_client_metrics_port()
    Result<std::uint32_t> metrics_port() const noexcept {
        Result<std::uint32_t> result;
        result.settle(reclane_client_metrics_port(raw(), &result.place(), result.out()));
        return result;
    }
    // reclane_client_profile()
    Result<reclane_client_profile_counters> profile(std::uint32_t shard) const noexcept {
        Result<reclane_client_profile_counters> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_client_profile_counters));
        result.settle(reclane_client_profile(raw(), shard, &result.place(), result.out()));
        return result;
    }
    // reclane_client_transport_profile()
    Result<reclane_transport_profile_counters> transport_profile(std::uint32_t shard) const noexcept {
        Result<reclane_transport_profile_counters> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_transport_profile_counters));
        result.settle(reclane_client_transport_profile(raw(), shard, &result.place(), result.out()));
        return result;
    }
    // reclane_checkpoint_begin(), without a section of the application
    Result<std::uint64_t> checkpoint_begin(std::uint32_t flags = 0) const noexcept {
        return begin(flags, nullptr, nullptr, 0);
    }
    // reclane_checkpoint_begin() with a section: any bytes, by name
    Result<std::uint64_t> checkpoint_begin(const std::string& name, const std::string& bytes,
                                           std::uint32_t flags = 0) const noexcept {
        return begin(flags, name.c_str(), bytes.data(), bytes.size());
    }
    // reclane_checkpoint_wait(); 0 is 600 s
    Result<reclane_checkpoint_info> checkpoint_wait(std::uint64_t number,
                                                    std::uint32_t state = RECLANE_CHECKPOINT_STATE_COMMITTED,
                                                    std::uint64_t timeout_ms = 0) const noexcept {
        Result<reclane_checkpoint_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_checkpoint_info));
        result.settle(reclane_checkpoint_wait(raw(), number, state, timeout_ms, &result.place(), result.out()));
        return result;
    }
    // reclane_checkpoint_status()
    Result<reclane_checkpoint_info> checkpoint_status(std::uint64_t number) const noexcept {
        Result<reclane_checkpoint_info> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_checkpoint_info));
        result.settle(reclane_checkpoint_status(raw(), number, &result.place(), result.out()));
        return result;
    }
    // reclane_checkpoint_abort()
    Result<void> checkpoint_abort(std::uint64_t number) const noexcept {
        Result<void> result;
        result.settle(reclane_checkpoint_abort(raw(), number, result.out()));
        return result;
    }
    // reclane_client_stats()
    Result<reclane_client_counters> stats() const noexcept {
        Result<reclane_client_counters> result;
        result.place().struct_size = static_cast<std::uint32_t>(sizeof(reclane_client_counters));
        result.settle(reclane_client_stats(raw(), &result.place(), result.out()));
        return result;
    }

private:
    Result<std::uint64_t> begin(std::uint32_t flags, const char* name, const void* bytes,
                                std::size_t count) const noexcept {
        reclane_checkpoint_request request{};
        request.struct_size = static_cast<std::uint32_t>(sizeof request);
        request.flags = flags;
        request.section_name = name;
        request.section = bytes;
        request.section_bytes = count;
        Result<std::uint64_t> result;
        result.settle(reclane_checkpoint_begin(raw(), &request, &result.place(), result.out()));
        return result;
    }
    template <class F>
    Result<Request> submitted(F&& call) noexcept {
        Result<Request> result;
        reclane_request token = 0;
        result.settle(call(&token, result.out()));
        result.place() = Request(raw(), token);
        return result;
    }
    template <class R>
    static R too_few_pointers(std::size_t pointers, std::size_t keys) noexcept {
        char message[128];
        (void)std::snprintf(message, sizeof message,
                            "gradients has %zu pointers, keys has %zu keys: give one pointer per key", pointers, keys);
        R result;
        result.refuse(RECLANE_STATUS_INVALID_ARGUMENT, message);
        return result;
    }
};

// reclane_set_event_sink() with a callable; it must be noexcept, since an exception that left it would end the process.
template <class F>
Result<void> set_event_sink(reclane_level level, F&& on_event) {
    using Callable = std::decay_t<F>;
    static_assert(std::is_nothrow_invocable_v<Callable&, const reclane_event&>,
                  "an event sink must be callable as void(const reclane_event&) noexcept");
    auto owned = std::make_unique<Callable>(std::forward<F>(on_event));
    reclane_event_sink sink{};
    sink.struct_size = static_cast<std::uint32_t>(sizeof sink);
    sink.level = level;
    sink.user_data = owned.get();
    sink.drop_user_data = [](void* user_data) noexcept { delete static_cast<Callable*>(user_data); };
    sink.on_event = [](void* user_data, const reclane_event* event) noexcept {
        (*static_cast<Callable*>(user_data))(*event);
    };
    Result<void> result;
    result.settle(reclane_set_event_sink(&sink, result.out()));
    if (result.ok())
        (void)owned.release();
    return result;
}

// reclane_set_event_sink() with nothing: takes the present sink away.
inline Result<void> clear_event_sink() noexcept {
    Result<void> result;
    result.settle(reclane_set_event_sink(nullptr, result.out()));
    return result;
}

}  // namespace RECLANE_FLAVOUR
}  // namespace reclane

#undef RECLANE_TRY
#undef RECLANE_CATCH
#undef RECLANE_FLAVOUR

#endif  // RECLANE_RECLANE_HPP
