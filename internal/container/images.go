package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/task"
)

// Images manages the images of the embedded runtime for people; the node agent
// uses CRI. It works inside the process that runs the runtime and, through the
// runtime's socket, in any other.
type Images struct {
	client      *containerd.Client
	cri         *CRI
	conn        *grpc.ClientConn // to another process; nil: the runtime is in this one
	snapshotter string           // empty until asked for
}

// DialImages connects to the runtime that serves the socket (Options.Socket)
// in another process.
func DialImages(socket string) (*Images, error) {
	probe, err := net.DialTimeout("unix", socket, 5*time.Second) // gRPC would wait for one to appear
	if err != nil {
		return nil, fmt.Errorf("connect to the container runtime: %w", err)
	}
	probe.Close()
	client, err := containerd.New(socket, containerd.WithDefaultNamespace(Namespace), containerd.WithTimeout(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connect to the container runtime at %s: %w", socket, err)
	}
	conn, err := dial(socket)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &Images{client: client, cri: newCRI(conn), conn: conn}, nil
}

// Close ends the connections.
func (im *Images) Close() error {
	if im.conn == nil {
		return nil // the runtime's own
	}
	return errors.Join(im.client.Close(), im.conn.Close())
}

// errLost ends what waits for a runtime that is gone.
var errLost = errors.New("the connection to the container runtime is lost")

// WhileConnected calls f with a context that ends when the process with the
// runtime does: the libraries would wait for it to come back.
func (im *Images) WhileConnected(ctx context.Context, f func(ctx context.Context) error) error {
	if im.conn == nil {
		return f(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if im.awaitLoss(ctx) {
			cancel(errLost)
		}
	})
	err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errLost) {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	cancel(nil)
	watch.Wait()
	return err
}

// awaitLoss connects, and reports that there is no connection any more, or false
// if ctx ends before.
func (im *Images) awaitLoss(ctx context.Context) bool {
	was := false // there has been a connection
	for {
		state := im.conn.GetState()
		switch {
		case state == connectivity.TransientFailure, was && state != connectivity.Ready:
			return true
		case state == connectivity.Ready:
			was = true
		case state == connectivity.Idle:
			im.conn.Connect()
		}
		if !im.conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

// ImageInfo is one image, with all names it has.
type ImageInfo struct {
	ID      string   // digest of its configuration
	Names   []string // such as kemudi.local/web:1, sorted
	Digests []string // such as kemudi.local/web@sha256:...
	Size    int64    // bytes, compressed
	Pinned  bool     // it stays when the node's disk fills up: it was imported, or is part of kemudi
}

// List returns the images, by name.
func (im *Images) List(ctx context.Context) ([]ImageInfo, error) {
	res, err := im.cri.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	list := make([]ImageInfo, 0, len(res.Images))
	for _, i := range res.Images {
		slices.Sort(i.RepoTags)
		list = append(list, ImageInfo{ID: i.Id, Names: i.RepoTags, Digests: i.RepoDigests, Size: int64(i.Size), Pinned: i.Pinned})
	}
	slices.SortFunc(list, func(a, b ImageInfo) int {
		return cmp.Or(slices.Compare(a.Names, b.Names), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Pull fetches an image from its registry, as the node agent would, and
// returns its ID. auth may be nil.
func (im *Images) Pull(ctx context.Context, name string, auth *runtimeapi.AuthConfig) (id string, err error) {
	full, err := fullName(name)
	if err != nil {
		return "", err
	}
	res, err := im.cri.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: full}, Auth: auth})
	if err != nil {
		return "", fmt.Errorf("pull image %s: %w", full, err)
	}
	return res.ImageRef, nil
}

// Remove removes one name of an image, and the image with its last name. What
// a container still uses stays on disk until the container is gone.
func (im *Images) Remove(ctx context.Context, name string) error {
	full, err := fullName(name)
	if err != nil {
		return err
	}
	res, err := im.cri.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: full}})
	switch {
	case err != nil:
		return fmt.Errorf("remove image %s: %w", full, err)
	case res.Image == nil:
		return fmt.Errorf("remove image %s: %w", full, errdefs.ErrNotFound)
	case full == PauseImage || slices.Contains(res.Image.RepoTags, PauseImage):
		return fmt.Errorf("remove image %s: it is part of kemudi: %w", full, errdefs.ErrFailedPrecondition)
	}
	if len(res.Image.RepoTags) > 1 && slices.Contains(res.Image.RepoTags, full) {
		err = im.client.ImageService().Delete(namespaces.WithNamespace(ctx, Namespace), full, images.SynchronousDelete())
		if err == nil {
			err = im.await(ctx, full, false)
		}
	} else {
		_, err = im.cri.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: full}})
	}
	if err != nil {
		return fmt.Errorf("remove image %s: %w", full, err)
	}
	return nil
}

// Import loads the images of an archive, which is what docker save writes or
// an OCI image layout as a tar, possibly compressed. It returns their names
// once the runtime can start containers from them. The images are pinned: the node
// agent does not remove them when its disk fills up, as no registry may have them.
// After an error nothing of the archive is left (invariant I4).
func (im *Images) Import(ctx context.Context, r io.Reader) (names []string, err error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	snapshotter, err := im.findSnapshotter(ctx)
	if err != nil {
		return nil, err
	}
	// Until an image has its name, the lease alone keeps its parts from being
	// collected. After a crash it runs out.
	lease, err := im.client.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(24*time.Hour))
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	defer func() {
		opts := []leases.DeleteOpt{}
		if err != nil {
			opts = append(opts, leases.SynchronousDelete) // leave with the disk space given back
		}
		err = errors.Join(err, im.client.LeasesService().Delete(context.WithoutCancel(ctx), lease, opts...))
	}()
	list, err := im.readArchive(leases.WithLease(ctx, lease.ID), r)
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	for _, i := range list {
		if err := containerd.NewImage(im.client, i).Unpack(leases.WithLease(ctx, lease.ID), snapshotter); err != nil {
			return nil, fmt.Errorf("import image %s: unpack: %w", i.Name, err)
		}
	}
	if err := im.name(ctx, list); err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	for _, i := range list {
		if err := im.await(ctx, i.Name, true); err != nil {
			return nil, fmt.Errorf("import image %s: %w", i.Name, err)
		}
		names = append(names, i.Name)
	}
	return names, nil
}

// readArchive stores the archive's content and returns its images, checked to
// be complete and for this machine.
func (im *Images) readArchive(ctx context.Context, r io.Reader) ([]images.Image, error) {
	plain, err := compression.DecompressStream(r)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	defer plain.Close()
	cs := im.client.ContentStore()
	index, err := archive.ImportIndex(ctx, cs, plain)
	if err != nil {
		return nil, fmt.Errorf("read archive (want what docker save writes or an OCI image layout): %w", err)
	}
	if _, err := io.Copy(io.Discard, plain); err != nil { // a checksum may follow
		return nil, fmt.Errorf("read archive: %w", err)
	}
	data, err := content.ReadBlob(ctx, cs, index)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	var parsed ocispec.Index
	if err := json.Unmarshal(data, &parsed); err != nil {
		return nil, fmt.Errorf("read archive: index: %w", err)
	}
	var list []images.Image
	for _, m := range parsed.Manifests {
		name, err := archiveName(m)
		if err != nil {
			return nil, err
		}
		if err := im.checkImage(ctx, m); err != nil {
			return nil, fmt.Errorf("image %s: %w", name, err)
		}
		list = append(list, images.Image{Name: name, Target: m, Labels: map[string]string{"io.cri-containerd.pinned": "pinned"}})
	}
	if len(list) == 0 {
		return nil, errors.New("the archive holds no image")
	}
	return list, nil
}

// checkImage finds everything an image consists of in the store, and ties the
// parts together for the garbage collector.
func (im *Images) checkImage(ctx context.Context, target ocispec.Descriptor) error {
	cs, platform := im.client.ContentStore(), platforms.Default()
	manifest, err := images.Manifest(ctx, cs, target, platform)
	switch {
	case errdefs.IsNotFound(err):
		return fmt.Errorf("the archive has none for %s: %w", platforms.Format(platforms.DefaultSpec()), err)
	case err != nil:
		return err
	}
	if p, err := images.ConfigPlatform(ctx, cs, manifest.Config); err == nil && !platform.Match(p) {
		return fmt.Errorf("the archive has none for %s: it is for %s", platforms.Format(platforms.DefaultSpec()), platforms.Format(p))
	}
	handler := images.SetChildrenLabels(cs, images.FilterPlatforms(images.ChildrenHandler(cs), platform))
	if err := images.WalkNotEmpty(ctx, handler, target); err != nil {
		return fmt.Errorf("the archive is incomplete: %w", err)
	}
	_, _, _, missing, err := images.Check(ctx, cs, target, platform)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("the archive is incomplete: %s is missing", missing[0].Digest)
	}
	return nil
}

// name gives all images their names, or, after an error, none.
func (im *Images) name(ctx context.Context, list []images.Image) (err error) {
	store := im.client.ImageService()
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		for _, f := range slices.Backward(undo) {
			err = errors.Join(err, f())
		}
	}()
	back := context.WithoutCancel(ctx)
	for _, i := range list {
		old, err := store.Get(ctx, i.Name)
		switch {
		case errdefs.IsNotFound(err):
			if _, err := store.Create(ctx, i); err != nil {
				return fmt.Errorf("name image %s: %w", i.Name, err)
			}
			undo = append(undo, func() error { return store.Delete(back, i.Name) })
		case err != nil:
			return fmt.Errorf("name image %s: %w", i.Name, err)
		default:
			// The labels go too: CRI looks at an image again when its own are missing.
			if _, err := store.Update(ctx, i); err != nil {
				return fmt.Errorf("name image %s: %w", i.Name, err)
			}
			undo = append(undo, func() error { _, err := store.Update(back, old); return err })
		}
	}
	return nil
}

// await waits until CRI, which follows the image store by events, knows name
// (or no longer does).
func (im *Images) await(ctx context.Context, name string, present bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	want, err := im.imageID(ctx, name)
	if err != nil {
		return err
	}
	wait := task.Backoff{Initial: time.Millisecond, Max: 100 * time.Millisecond}
	for {
		res, err := im.cri.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
		if err != nil {
			return err
		}
		if present && res.Image != nil && res.Image.Id == want || !present && res.Image == nil {
			return nil
		}
		if err := task.Sleep(ctx, wait.Next()); err != nil {
			return fmt.Errorf("wait for the runtime to notice: %w", err)
		}
	}
}

// imageID returns the digest of the configuration of the image called name, or
// nothing if there is no such image.
func (im *Images) imageID(ctx context.Context, name string) (string, error) {
	i, err := im.client.ImageService().Get(namespaces.WithNamespace(ctx, Namespace), name)
	if errdefs.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	config, err := i.Config(namespaces.WithNamespace(ctx, Namespace), im.client.ContentStore(), platforms.Default())
	return config.Digest.String(), err
}

// findSnapshotter asks the runtime for the one snapshotter it has.
func (im *Images) findSnapshotter(ctx context.Context) (string, error) {
	if im.snapshotter != "" {
		return im.snapshotter, nil
	}
	res, err := im.client.IntrospectionService().Plugins(ctx, "type=="+string(plugins.SnapshotPlugin))
	if err != nil {
		return "", fmt.Errorf("ask the container runtime for its snapshotter: %w", err)
	}
	for _, p := range res.Plugins {
		if p.InitErr == nil {
			return p.ID, nil
		}
	}
	return "", errors.New("the container runtime has no snapshotter")
}

// fullName completes a name as Docker does: busybox is docker.io/library/busybox:latest.
func fullName(name string) (string, error) {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", name, err)
	}
	return ref.String(), nil
}

// archiveName returns the name that an archive gives an image.
func archiveName(m ocispec.Descriptor) (string, error) {
	name := m.Annotations[images.AnnotationImageName]
	if name == "" {
		name = m.Annotations[ocispec.AnnotationRefName]
		if _, err := reference.ParseNamed(name); err != nil {
			return "", fmt.Errorf("image %s has no full name in the archive (annotation %s): tag it before it is saved", m.Digest, images.AnnotationImageName)
		}
	}
	return fullName(name)
}
