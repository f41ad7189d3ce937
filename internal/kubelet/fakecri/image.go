package fakecri

import (
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The ID of an image is its name with this before it.
const idPrefix = "sha256:"

// AddImage puts images on the node.
func (r *Runtime) AddImage(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		r.mu.images[name] = true
	}
}

// ImageStatus finds an image by name or ID.
func (r *Runtime) ImageStatus(_ context.Context, in *runtimeapi.ImageStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(in.GetImage().GetImage(), idPrefix)
	if !r.mu.images[name] {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: image(name)}, nil
}

func image(name string) *runtimeapi.Image {
	return &runtimeapi.Image{Id: idPrefix + name, RepoTags: []string{name}, Size: 1 << 20, Spec: &runtimeapi.ImageSpec{Image: name}, Pinned: strings.Contains(name, "pause")}
}

// PullImage makes the image present, if Options.Pull lets it.
func (r *Runtime) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, _ ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	name := in.GetImage().GetImage()
	if r.o.Pull != nil {
		if err := r.o.Pull(ctx, name); err != nil {
			return nil, err
		}
	}
	r.AddImage(name)
	return &runtimeapi.PullImageResponse{ImageRef: idPrefix + name}, nil
}

// ListImages lists what is present.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ListImagesRequest, ...grpc.CallOption) (*runtimeapi.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListImagesResponse{}
	for _, name := range slices.Sorted(maps.Keys(r.mu.images)) {
		out.Images = append(out.Images, image(name))
	}
	return out, nil
}

// RemoveImage forgets an image, by its ID.
func (r *Runtime) RemoveImage(_ context.Context, in *runtimeapi.RemoveImageRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.images, strings.TrimPrefix(in.GetImage().GetImage(), idPrefix))
	return &runtimeapi.RemoveImageResponse{}, nil
}

// Images lists the names of what is present.
func (r *Runtime) Images() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.mu.images))
}

// ImageFsInfo says that images are on a file system of their own.
func (r *Runtime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}}}}, nil
}
