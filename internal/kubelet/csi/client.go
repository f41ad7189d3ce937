package csi

import (
	"context"
	"fmt"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/kemudi/kemudi/internal/kubelet/plugin"
)

// callDeadline is how long a driver has for one call.
const callDeadline = 2 * time.Minute

// client is a driver's service for nodes. It connects for each call: drivers come and go, and calls are
// rare.
type client struct {
	endpoint string
	counted  grpc.UnaryClientInterceptor // its calls
}

// call makes one call of a driver.
func call[In, Out any](ctx context.Context, c client, f func(csipb.NodeClient, context.Context, In, ...grpc.CallOption) (Out, error), in In) (out Out, err error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	conn, err := plugin.Dial(c.endpoint, grpc.WithUnaryInterceptor(c.counted))
	if err != nil {
		return out, err
	}
	defer conn.Close()
	return f(csipb.NewNodeClient(conn), ctx, in)
}

// abilities are what a driver says its service for nodes can do.
type abilities map[csipb.NodeServiceCapability_RPC_Type]bool

func (c client) abilities(ctx context.Context) (abilities, error) {
	resp, err := call(ctx, c, csipb.NodeClient.NodeGetCapabilities, &csipb.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the driver for its capabilities: %w", err)
	}
	out := abilities{}
	for _, one := range resp.Capabilities {
		if rpc := one.GetRpc(); rpc != nil {
			out[rpc.Type] = true
		}
	}
	return out, nil
}

func (a abilities) stage() bool  { return a[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] }
func (a abilities) expand() bool { return a[csipb.NodeServiceCapability_RPC_EXPAND_VOLUME] }
func (a abilities) stats() bool  { return a[csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS] }

// group says that the driver itself gives a volume to the pod's group.
func (a abilities) group() bool { return a[csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] }

// single says that the driver tells one writer on a node from several.
func (a abilities) single() bool {
	return a[csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]
}
