package kubelet

import (
	"context"

	"github.com/kemudi/kemudi/internal/kubelet/image"
)

// newImages makes what pulls images and what removes them.
func (a *Agent) newImages() (err error) {
	if a.providers, err = image.NewProviders(a.o.ImageConfig, a.o.Log); err != nil {
		return err
	}
	a.puller = image.NewPuller(a.o.Images, a.o.ImageConfig, a.nodeCredentials)
	a.collector = image.NewCollector(image.CollectorOptions{
		Config: a.o.ImageConfig, Images: a.o.Images, Runtime: a.o.Runtime, Puller: a.puller, Log: a.o.Log,
		Event: func(kind, reason, message string) { a.o.Events.Event(a.node.Self(), kind, reason, message) },
	})
	return nil
}

// nodeCredentials are those that every pod of the node may pull an image with.
func (a *Agent) nodeCredentials(ctx context.Context, name string) *image.Keyring {
	if a.disk == nil {
		return nil
	}
	k, err := image.NodeKeyring(a.o.RootDir)
	if err != nil {
		a.o.Log.Warn("read registry credentials of the node", "err", err)
	}
	a.providers.AddTo(ctx, k, name)
	return k
}
