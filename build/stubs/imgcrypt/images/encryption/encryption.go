// Package encryption has the options by which containerd asks for decryption.
package encryption

import (
	"context"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/diff"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/containerd/imgcrypt/v2"
)

// WithDecryptedUnpack asks for nothing: layers are taken as they are.
func WithDecryptedUnpack(*imgcrypt.Payload) diff.ApplyOpt {
	return func(context.Context, imagespec.Descriptor, *diff.ApplyConfig) error { return nil }
}

// WithUnpackConfigApplyOpts hands opt to whoever unpacks a layer.
func WithUnpackConfigApplyOpts(opt diff.ApplyOpt) client.UnpackOpt {
	return func(_ context.Context, c *client.UnpackConfig) error {
		c.ApplyOpts = append(c.ApplyOpts, opt)
		return nil
	}
}
