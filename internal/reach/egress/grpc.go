package egress

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
)

// byGRPC has a konnectivity server, which listens at a socket of this machine, connect to an address. Each connection is
// a stream of its own, which ends with it; stage is where it has gone wrong.
func (p *Proxy) byGRPC(ctx context.Context, address string) (conn net.Conn, stage string, err error) {
	// What is dialled outlives the dialling.
	tunnel, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, context.WithoutCancel(ctx), "passthrough:///"+p.address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // whoever may open the socket may ask
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, p.network, p.address)
		}))
	if err != nil {
		return nil, "connect", fmt.Errorf("connect to the egress proxy at %s: %w", p.address, err)
	}
	conn, err = tunnel.DialContext(ctx, "tcp", address)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		return nil, "proxy", fmt.Errorf("ask the egress proxy at %s for %s: %w", p.address, address, err)
	}
	return conn, "", nil
}
