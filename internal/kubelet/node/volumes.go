package node

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/cache"
)

// SetVolumesInUse says what attached volumes are in use on the node, sorted; nobody may change it any more. The control
// plane detaches none that the node's status names.
func (n *Node) SetVolumesInUse(volumes []v1.UniqueVolumeName) {
	n.mu.Lock()
	n.mu.inUse = volumes
	n.mu.Unlock()
	n.Look()
}

// volumesInUse are those that SetVolumesInUse has said; ok is false if it has not been called.
func (n *Node) volumesInUse() (volumes []v1.UniqueVolumeName, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.inUse, n.mu.inUse != nil
}

// otherVolumes reports whether other volumes are in use than the node's status says.
func (h *heartbeat) otherVolumes() bool {
	volumes, ok := h.n.volumesInUse()
	return ok && !slices.Equal(volumes, h.node.Status.VolumesInUse)
}

// AwaitAttached waits until the node's status says of a volume that it is in use, which keeps it, and that it is attached.
func (n *Node) AwaitAttached(ctx context.Context, volume v1.UniqueVolumeName) error {
	return n.await(ctx, func(node *v1.Node) bool {
		return slices.Contains(node.Status.VolumesInUse, volume) &&
			slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == volume })
	})
}

// await waits until there is the Node, as it should be.
func (n *Node) await(ctx context.Context, as func(*v1.Node) bool) error {
	f := n.cache.Follow(cache.FollowOptions{})
	defer f.Close()
	for {
		if node, ok := n.Seen(); ok && as(node) {
			return nil
		}
		select {
		case <-f.Ready():
			f.Next()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
