package worker

import (
	"context"
	"fmt"

	"github.com/kemudi/kemudi/internal/podnet"
)

// bridge is the pod network of this node, which pods may be quicker than after a restart.
type bridge struct {
	there chan struct{} // closed when pods is set
	pods  *podnet.Network
}

// is says, once, which network it is.
func (b *bridge) is(pods *podnet.Network) {
	b.pods = pods
	close(b.there)
}

// connected has the pod of a new sandbox send with its own addresses alone.
func (b *bridge) connected(ctx context.Context, sandbox string) error {
	select {
	case <-b.there:
		return b.pods.Connected(ctx, sandbox)
	case <-ctx.Done():
		return fmt.Errorf("wait for the pod network: %w", context.Cause(ctx))
	}
}
