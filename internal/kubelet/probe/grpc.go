package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// grpc asks by the gRPC health checking protocol.
func (p *Prober) grpc(ctx context.Context, h *v1.GRPCAction, t Target) (Result, string) {
	service := ""
	if h.Service != nil {
		service = *h.Service
	}
	address := net.JoinHostPort(t.PodIP, strconv.Itoa(int(h.Port)))
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent("kube-probe/"+p.Version), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return p.dial(ctx, "tcp", address) }))
	if err != nil {
		return Unknown, err.Error()
	}
	defer conn.Close()
	if err := connected(ctx, conn); err != nil {
		return Failure, fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, t.Timeout, err)
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	switch s := status.Convert(err); {
	case err == nil && resp.Status == grpc_health_v1.HealthCheckResponse_SERVING:
		return Success, "service healthy"
	case err == nil:
		return Failure, fmt.Sprintf("service unhealthy (responded with %q)", resp.Status)
	case s.Code() == codes.Unimplemented:
		return Failure, fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", s.Message())
	case s.Code() == codes.DeadlineExceeded:
		return Failure, fmt.Sprintf("timeout: health rpc did not complete within %v", t.Timeout)
	default:
		return Failure, fmt.Sprintf("error: health rpc probe failed: %v", err)
	}
}

// connected waits until a connection is there; who refuses one is asked again meanwhile.
func connected(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
		if !conn.WaitForStateChange(ctx, s) {
			return ctx.Err()
		}
		if s == connectivity.Idle {
			conn.Connect()
		}
	}
	return nil
}
