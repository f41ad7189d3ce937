package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc"

	"github.com/kemudi/kemudi/internal/task"
)

// servers are the two sockets of the embedded containerd: its gRPC API, which
// includes CRI, for other processes, and the ttrpc one that shims send their
// events to.
type servers struct {
	grpc          *grpc.Server
	ttrpc         *ttrpc.Server
	grpcL, ttrpcL net.Listener
}

func newServers(o Options, p *plugged, around grpc.UnaryServerInterceptor) (_ *servers, err error) {
	s := &servers{grpc: grpc.NewServer(
		grpc.ChainUnaryInterceptor(keepNamespace, around), grpc.ChainStreamInterceptor(keepStreamNamespace),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))}
	if s.ttrpc, err = ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser())); err != nil {
		return nil, fmt.Errorf("serve containerd: %w", err)
	}
	if err := p.services(s.register); err != nil {
		return nil, err
	}
	if s.grpcL, err = listen(o.Socket()); err != nil {
		return nil, err
	}
	if s.ttrpcL, err = listen(o.Socket() + ".ttrpc"); err != nil {
		s.grpcL.Close()
		return nil, err
	}
	return s, nil
}

func (s *servers) register(instance any) error {
	if r, ok := instance.(interface{ Register(*grpc.Server) error }); ok {
		if err := r.Register(s.grpc); err != nil {
			return err
		}
	}
	if r, ok := instance.(interface{ RegisterTTRPC(*ttrpc.Server) error }); ok {
		return r.RegisterTTRPC(s.ttrpc)
	}
	return nil
}

// serve starts both servers in g; stop ends them.
func (s *servers) serve(g *task.Group) {
	g.Go("containerd socket", func(context.Context) error {
		return s.grpc.Serve(s.grpcL)
	})
	g.Go("containerd shim socket", func(ctx context.Context) error {
		if err := s.ttrpc.Serve(context.WithoutCancel(ctx), s.ttrpcL); !errors.Is(err, ttrpc.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// stop ends both servers and every call that is being answered. The ttrpc
// socket's file goes as well: a shim that finds none keeps its events for the
// next start.
func (s *servers) stop() {
	s.grpc.Stop()
	s.ttrpc.Close()
}

// listen opens a unix socket that root alone may use. Whoever calls it owns
// the directory's lock, so a file that is there is a dead process's.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// keepNamespace carries the caller's containerd namespace on into calls that
// the handler makes itself.
func keepNamespace(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	if ns, ok := namespaces.Namespace(ctx); ok {
		ctx = namespaces.WithNamespace(ctx, ns)
	}
	return h(ctx, req)
}

func keepStreamNamespace(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	if ns, ok := namespaces.Namespace(ss.Context()); ok {
		ss = namespacedStream{ss, namespaces.WithNamespace(ss.Context(), ns)}
	}
	return h(srv, ss)
}

type namespacedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s namespacedStream) Context() context.Context { return s.ctx }
