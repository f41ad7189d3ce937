package up

import (
	"context"
	"errors"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/kubelet/image"
)

// Pull fetches an image as the node agent of this machine does for a pod that has no credentials of its own: with those
// that the machine has for its registry, one after the other, or without any. It returns the image's ID.
func Pull(ctx context.Context, images *container.Images, dataDir, name string) (id string, err error) {
	keys, broken := image.NodeKeyring(filepath.Join(dataDir, "kubelet"))
	var all []*runtimeapi.AuthConfig
	for _, c := range keys.Lookup(name) {
		all = append(all, c.AuthConfig)
	}
	if len(all) == 0 {
		all = append(all, nil)
	}
	var refused error
	for _, auth := range all {
		if id, err = images.Pull(ctx, name, auth); err == nil {
			return id, nil
		}
		refused = errors.Join(refused, err)
	}
	return "", errors.Join(refused, broken)
}
