// Unary calls of plain bytes over gRPC's C++ library, as its generated code would make them, by its asynchronous
// interface: one thread and one completion queue on each side.
#include "grpc_calls.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <memory>
#include <vector>

namespace {

constexpr char kMethod[] = "/rows.Rows/Call";
constexpr int kMessageMax = 1 << 20;
// Calls that the server waits for at a time.
constexpr int kAsked = 64;

// The one slice of what was received; joined if it came in several.
grpc::Slice whole(const grpc::ByteBuffer& buffer) {
    grpc::Slice slice;
    if (buffer.TrySingleSlice(&slice).ok()) return slice;
    if (!buffer.DumpToSingleSlice(&slice).ok()) return grpc::Slice();
    return slice;
}

class Rows : public grpc::Service {
public:
    Rows() {
        AddMethod(new grpc::internal::RpcServiceMethod(kMethod, grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
        MarkMethodAsync(0);
    }
    template <class Responder>
    void ask(grpc::ServerContext* context, grpc::ByteBuffer* request, Responder* responder, grpc::ServerCompletionQueue* queue, void* tag) {
        RequestAsyncUnary(0, context, request, responder, queue, queue, tag);
    }
};

struct Served {
    std::unique_ptr<grpc::ServerContext> context;
    grpc::ByteBuffer request;
    std::unique_ptr<grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>> responder;
    bool is_answered = false;

    void ask(Rows* rows, grpc::ServerCompletionQueue* queue) {
        context = std::make_unique<grpc::ServerContext>();
        responder = std::make_unique<grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>>(context.get());
        request.Clear();
        is_answered = false;
        rows->ask(context.get(), &request, responder.get(), queue, this);
    }
};

struct Slot {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
    grpc::ByteBuffer answer;
    grpc::Slice bytes;
    grpc::Status status;
    bool is_done = true;
};

std::shared_ptr<grpc::Channel> channel;
std::unique_ptr<grpc::internal::RpcMethod> method;
std::unique_ptr<grpc::CompletionQueue> queue;
std::vector<Slot> slots;

} // namespace

extern "C" void grpc_serve(const char* place, grpc_handler handler, void (*told)(int port)) {
    Rows rows;
    int port = 0;
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMessageMax);
    builder.AddListeningPort(place, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&rows);
    std::unique_ptr<grpc::ServerCompletionQueue> calls = builder.AddCompletionQueue();
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server) return;
    std::vector<Served> served(kAsked);
    for (Served& one : served) one.ask(&rows, calls.get());
    told(port);
    std::vector<char> answer(kMessageMax);
    void* tag;
    bool is_ok;
    while (calls->Next(&tag, &is_ok)) {
        Served* one = static_cast<Served*>(tag);
        if (one->is_answered || !is_ok) {
            one->ask(&rows, calls.get());
            continue;
        }
        grpc::Slice request = whole(one->request);
        size_t bytes = handler(request.begin(), request.size(), answer.data());
        grpc::Slice content(answer.data(), bytes);
        one->is_answered = true;
        one->responder->Finish(grpc::ByteBuffer(&content, 1), grpc::Status::OK, one);
    }
}

extern "C" int grpc_open(const char* place, unsigned count) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMessageMax);
    channel = grpc::CreateCustomChannel(place, grpc::InsecureChannelCredentials(), arguments);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) return -1;
    method = std::make_unique<grpc::internal::RpcMethod>(kMethod, grpc::internal::RpcMethod::NORMAL_RPC, channel);
    queue = std::make_unique<grpc::CompletionQueue>();
    slots.resize(count);
    return 0;
}

extern "C" void grpc_begin(unsigned slot, const void* request, size_t bytes) {
    Slot& one = slots[slot];
    // It lies in its call's memory, and goes before it.
    one.reader.reset();
    one.context = std::make_unique<grpc::ClientContext>();
    one.is_done = false;
    grpc::Slice content(request, bytes);
    grpc::ByteBuffer buffer(&content, 1);
    one.reader.reset(grpc::internal::ClientAsyncResponseReaderHelper::Create<grpc::ByteBuffer>(channel.get(), queue.get(), *method, one.context.get(), buffer));
    one.reader->StartCall();
    one.reader->Finish(&one.answer, &one.status, &one);
}

extern "C" int grpc_finish(unsigned slot, const void** answer, size_t* bytes) {
    Slot& one = slots[slot];
    while (!one.is_done) {
        void* tag;
        bool is_ok;
        if (!queue->Next(&tag, &is_ok)) return -1;
        static_cast<Slot*>(tag)->is_done = true;
    }
    if (!one.status.ok()) return -1;
    one.bytes = whole(one.answer);
    *answer = one.bytes.begin();
    *bytes = one.bytes.size();
    return 0;
}
