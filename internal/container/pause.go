package container

import (
	"bytes"
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/kemudi/kemudi/internal/ociimage"
)

// ensurePause makes the pause image be there, without a network.
func (im *Images) ensurePause(ctx context.Context) error {
	image, err := pauseImage()
	if err != nil {
		return err
	}
	built, err := ociimage.Build(image)
	if err != nil {
		return err
	}
	want, err := built.Digest()
	if err != nil {
		return fmt.Errorf("build pause image: %w", err)
	}
	have, err := im.client.ImageService().Get(namespaces.WithNamespace(ctx, Namespace), PauseImage)
	if err == nil && have.Target.Digest.String() == want.String() {
		return nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("look for pause image: %w", err)
	}
	var archive bytes.Buffer
	if err := ociimage.Write(&archive, image); err != nil {
		return err
	}
	_, err = im.Import(ctx, &archive)
	return err
}

func pauseImage() (ociimage.Image, error) {
	list, err := readManifest()
	if err != nil {
		return ociimage.Image{}, err
	}
	for _, p := range list {
		if p.name != "pause" {
			continue
		}
		stream, err := unpackStream(p.stream)
		if err != nil {
			return ociimage.Image{}, fmt.Errorf("unpack pause: %w", err)
		}
		data, err := p.content(stream)
		if err != nil {
			return ociimage.Image{}, fmt.Errorf("unpack pause: %w", err)
		}
		return ociimage.Image{
			Names:      []string{PauseImage},
			Files:      []ociimage.File{{Path: "/pause", Content: data, Mode: 0o755}},
			Entrypoint: []string{"/pause"},
			User:       "65535:65535",
		}, nil
	}
	return ociimage.Image{}, fmt.Errorf("unpack pause: %w", ErrNotBuilt)
}
