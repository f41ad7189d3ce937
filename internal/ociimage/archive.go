package ociimage

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageName is the annotation by which containerd names an image in an archive.
const imageName = "io.containerd.image.name"

// Write writes an archive of the images to w: an OCI image layout with a
// Docker manifest beside it, so that `kemudi image import`, `ctr images
// import`, `docker load` and `podman load` all take it.
func Write(w io.Writer, images ...Image) error {
	a := archive{tar: tar.NewWriter(w), have: map[string]bool{}}
	a.index = v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, im := range images {
		if err := a.add(im); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name  string
		value any
	}{
		{"oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}},
		{"index.json", a.index},
		{"manifest.json", a.docker},
	} {
		data, err := json.Marshal(f.value)
		if err != nil {
			return fmt.Errorf("write image archive: %w", err)
		}
		if err := a.file(f.name, data); err != nil {
			return fmt.Errorf("write image archive: %w", err)
		}
	}
	if err := a.tar.Close(); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return nil
}

type archive struct {
	tar    *tar.Writer
	have   map[string]bool // names of files written
	index  v1.IndexManifest
	docker []dockerManifest
}

// dockerManifest is one entry of manifest.json, as docker save writes it.
type dockerManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (a *archive) add(im Image) error {
	img, err := Build(im)
	if err != nil {
		return err
	}
	d, err := a.blobs(img)
	if err != nil {
		return fmt.Errorf("write image %s: %w", im.Names[0], err)
	}
	for _, n := range im.Names {
		ref, err := reference(n)
		if err != nil {
			return err
		}
		desc, err := descriptor(img)
		if err != nil {
			return fmt.Errorf("write image %s: %w", n, err)
		}
		desc.Annotations = map[string]string{imageName: n, "org.opencontainers.image.ref.name": ref.TagStr()}
		a.index.Manifests = append(a.index.Manifests, desc)
	}
	d.RepoTags = im.Names
	a.docker = append(a.docker, d)
	return nil
}

func descriptor(img v1.Image) (v1.Descriptor, error) {
	digest, err := img.Digest()
	if err != nil {
		return v1.Descriptor{}, err
	}
	size, err := img.Size()
	if err != nil {
		return v1.Descriptor{}, err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{
		MediaType: types.OCIManifestSchema1, Digest: digest, Size: size,
		Platform: &v1.Platform{OS: c.OS, Architecture: c.Architecture},
	}, nil
}

// blobs writes the image's manifest, configuration and layers.
func (a *archive) blobs(img v1.Image) (d dockerManifest, err error) {
	manifest, err := img.RawManifest()
	if err != nil {
		return d, err
	}
	digest, err := img.Digest()
	if err != nil {
		return d, err
	}
	if err := a.file(blobPath(digest), manifest); err != nil {
		return d, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return d, err
	}
	if digest, err = img.ConfigName(); err != nil {
		return d, err
	}
	d.Config = blobPath(digest)
	if err := a.file(d.Config, config); err != nil {
		return d, err
	}
	layers, err := img.Layers()
	if err != nil {
		return d, err
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return d, err
		}
		r, err := l.Compressed()
		if err != nil {
			return d, err
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return d, err
		}
		if err := a.file(blobPath(digest), data); err != nil {
			return d, err
		}
		d.Layers = append(d.Layers, blobPath(digest))
	}
	return d, nil
}

func blobPath(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// file writes one file of the archive, once.
func (a *archive) file(name string, data []byte) error {
	if a.have[name] {
		return nil
	}
	a.have[name] = true
	h := &tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err := a.tar.Write(data)
	return err
}
