package container

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/task"
)

// directConn is a gRPC connection without a wire: a call runs the service's
// handler in the caller's goroutine. Messages are copied both ways, as they
// would be on a wire, because the service keeps parts of what it is given.
//
// Unlike a real connection it does not return before the handler does: when
// the context ends, it is the handler that has to notice.
type directConn struct {
	impl   atomic.Pointer[directService] // nil while there is no service
	around grpc.UnaryServerInterceptor   // put around each call; nil: nothing
}

// criService is what containerd's CRI plugin is, as seen from here.
type criService interface {
	runtimeapi.RuntimeServiceServer
	runtimeapi.ImageServiceServer
	IsInitialized() bool
}

var _ grpc.ClientConnInterface = (*directConn)(nil)

// directService is a service while it runs, and the calls that it answers.
type directService struct {
	criService
	ended context.Context // calls end with it
	end   context.CancelFunc

	mu struct {
		sync.Mutex
		calls int
		idle  chan struct{} // set when the service ends, closed by the last call
	}
}

func (c *directConn) connect(ctx context.Context, s criService) {
	d := &directService{criService: s}
	d.ended, d.end = context.WithCancel(context.WithoutCancel(ctx))
	c.impl.Store(d)
}

// cut ends the service for callers. It cancels the calls that are being
// answered and waits for their handlers to return, but not for longer than
// patience: what the handlers work with is about to be closed.
func (c *directConn) cut(patience time.Duration) {
	d := c.impl.Swap(nil)
	d.end()
	d.mu.Lock()
	idle := make(chan struct{})
	if d.mu.idle = idle; d.mu.calls == 0 {
		close(idle)
	}
	d.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(patience):
	}
}

// begin counts a call; the caller must call the returned function at its end.
func (d *directService) begin() (end func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.idle != nil {
		return nil, false
	}
	d.mu.calls++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.mu.calls--; d.mu.calls == 0 && d.mu.idle != nil {
			close(d.mu.idle)
		}
	}, true
}

var errNotRunning = status.Error(codes.Unavailable, "the embedded container runtime is not running")

func (c *directConn) service() (*directService, error) {
	d := c.impl.Load()
	if d == nil || !d.IsInitialized() {
		return nil, errNotRunning
	}
	return d, nil
}

// Invoke runs a unary call.
func (c *directConn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	s, err := c.service()
	if err != nil {
		return err
	}
	m, ok := unaryMethods[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	end, ok := s.begin()
	if !ok {
		return errNotRunning
	}
	defer end()
	ctx, cancel := context.WithCancel(namespaces.WithNamespace(ctx, Namespace))
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	out, err := m.Handler(s.criService, ctx, func(req any) error {
		proto.Merge(req.(proto.Message), args.(proto.Message))
		return nil
	}, c.around)
	if err != nil {
		return grpcError(err)
	}
	proto.Merge(reply.(proto.Message), out.(proto.Message))
	return nil
}

// NewStream starts a server stream; CRI has no others.
func (c *directConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.service()
	if err != nil {
		return nil, err
	}
	d, ok := streamMethods[method]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	ctx, cancel := context.WithCancel(namespaces.WithNamespace(ctx, Namespace))
	forget := context.AfterFunc(s.ended, cancel)
	context.AfterFunc(ctx, func() { forget() })
	return &directStream{ctx: ctx, cancel: cancel, service: s.criService, handler: d.Handler, messages: make(chan proto.Message), done: make(chan struct{})}, nil
}

// directStream is both ends of a server stream: the caller's end in its
// methods, the handler's in serverEnd.
type directStream struct {
	ctx     context.Context
	cancel  context.CancelFunc
	service criService
	handler grpc.StreamHandler

	request  proto.Message
	messages chan proto.Message
	done     chan struct{} // closed by the handler's goroutine, after err is set
	err      error
}

func (s *directStream) Context() context.Context     { return s.ctx }
func (s *directStream) Header() (metadata.MD, error) { return nil, nil }
func (s *directStream) Trailer() metadata.MD         { return nil }

// SendMsg takes the one request.
func (s *directStream) SendMsg(m any) error {
	s.request = proto.Clone(m.(proto.Message))
	return nil
}

// CloseSend starts the handler. Its goroutine ends when the handler returns,
// which for container events is at the first event after the caller has gone:
// containerd's handler waits for nothing else.
func (s *directStream) CloseSend() error {
	g := task.NewGroup(s.ctx)
	g.Go("cri stream", func(context.Context) error {
		defer close(s.done)
		s.err = s.handler(s.service, serverEnd{s})
		return nil
	})
	return nil
}

// RecvMsg waits for the next message, io.EOF at the end of the stream.
func (s *directStream) RecvMsg(m any) error {
	select {
	case got := <-s.messages:
		proto.Reset(m.(proto.Message))
		proto.Merge(m.(proto.Message), got)
		return nil
	case <-s.done:
		s.cancel()
		if s.err == nil {
			return io.EOF
		}
		return grpcError(s.err)
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

type serverEnd struct{ s *directStream }

func (e serverEnd) Context() context.Context     { return e.s.ctx }
func (e serverEnd) SetHeader(metadata.MD) error  { return nil }
func (e serverEnd) SendHeader(metadata.MD) error { return nil }
func (e serverEnd) SetTrailer(metadata.MD)       {}

func (e serverEnd) RecvMsg(m any) error {
	if e.s.request == nil {
		return io.EOF
	}
	proto.Merge(m.(proto.Message), e.s.request)
	return nil
}

func (e serverEnd) SendMsg(m any) error {
	select {
	case e.s.messages <- m.(proto.Message):
		return nil
	case <-e.s.ctx.Done():
		return e.s.ctx.Err()
	}
}

// grpcError gives the handler's error the code it would have on a wire.
func grpcError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return status.FromContextError(err).Err()
	}
	return errgrpc.ToGRPC(err)
}

var unaryMethods, streamMethods = methodsOf(&runtimeapi.RuntimeService_ServiceDesc, &runtimeapi.ImageService_ServiceDesc)

func methodsOf(services ...*grpc.ServiceDesc) (map[string]grpc.MethodDesc, map[string]grpc.StreamDesc) {
	unary, streams := map[string]grpc.MethodDesc{}, map[string]grpc.StreamDesc{}
	for _, d := range services {
		for _, m := range d.Methods {
			unary["/"+d.ServiceName+"/"+m.MethodName] = m
		}
		for _, s := range d.Streams {
			streams["/"+d.ServiceName+"/"+s.StreamName] = s
		}
	}
	return unary, streams
}
