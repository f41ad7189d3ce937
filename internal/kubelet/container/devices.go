package container

import (
	"context"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// devices is what the container is started with for its devices: those of plugins, which are told of
// the start, and those of its resource claims. Nil: it has none.
func (c *Container) devices(ctx context.Context) (*cri.Devices, error) {
	out, err := c.Runner.Devices.For(ctx, c.Pod, c.Spec)
	if err != nil {
		return nil, err
	}
	names, err := c.Runner.Claims.CDI(c.Pod, c.Spec)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if out == nil {
			out = &cri.Devices{}
		}
		out.AddCDI(name)
	}
	return out, nil
}
