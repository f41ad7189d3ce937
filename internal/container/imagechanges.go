package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// settleTime is how long CRI may take to hear of a change of an image.
const settleTime = 2 * time.Second

// Follow calls changed at once, and after images have been added or removed, by
// whomever, as soon as CRI knows of it, until ctx ends or the runtime does.
func (im *Images) Follow(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(namespaces.WithNamespace(ctx, Namespace))
	defer cancel()
	events, failed := im.client.Subscribe(ctx, `topic~="^/images/"`)
	changed()
	for {
		select {
		case e := <-events:
			if name, ok := e.Field([]string{"event", "name"}); ok {
				im.settle(ctx, name)
			}
			changed()
		case err := <-failed:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("follow images: %w", errors.Join(errLost, err))
		}
	}
}

// settle waits until CRI knows that there is such an image, or is not any more:
// it hears of it no sooner than we do. Digests are further names of an image, and
// of no interest by themselves.
func (im *Images) settle(ctx context.Context, name string) {
	if strings.HasPrefix(name, "sha256:") || strings.Contains(name, "@") {
		return
	}
	_, err := im.client.ImageService().Get(ctx, name)
	if err != nil && !errdefs.IsNotFound(err) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	_ = im.await(ctx, name, err == nil) // CRI leaves out what it cannot run
}
