package container

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
)

// hostsPath is where a container finds its hosts file.
const hostsPath = "/etc/hosts"

// mounts lists what the container mounts: its volumes, and files of the node's.
func (c *Container) mounts(ctx context.Context, env []*runtimeapi.KeyValue) ([]*runtimeapi.Mount, error) {
	if c.Runner.Disk == nil {
		return nil, nil
	}
	var out []*runtimeapi.Mount
	for i := range c.Spec.VolumeMounts {
		m, err := c.mount(ctx, i, env)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	taken := func(path string) bool {
		return slices.ContainsFunc(out, func(m *runtimeapi.Mount) bool { return m.ContainerPath == path })
	}
	if (len(c.PodIPs) > 0 || c.Pod.Spec.HostNetwork) && !taken(hostsPath) {
		node := c.Runner.now()
		path, err := c.Runner.Disk.HostsFile(c.Pod.UID, cri.HostsFile(c.Pod, &node, c.PodIPs))
		if err != nil {
			return nil, err
		}
		readOnly := c.Spec.SecurityContext != nil && c.Spec.SecurityContext.ReadOnlyRootFilesystem != nil && *c.Spec.SecurityContext.ReadOnlyRootFilesystem
		out = append(out, &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: path, Readonly: readOnly, SelinuxRelabel: true})
	}
	if p := c.Spec.TerminationMessagePath; p != "" && !taken(p) {
		path, err := c.Runner.Disk.TerminationLog(c.Pod.UID, c.Spec.Name, c.Act.Attempt)
		if err != nil {
			return nil, err
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: p, HostPath: path, SelinuxRelabel: true})
	}
	return out, c.placeWithin(out)
}

// mount is the container's mount number i.
func (c *Container) mount(ctx context.Context, i int, env []*runtimeapi.KeyValue) (*runtimeapi.Mount, error) {
	m := &c.Spec.VolumeMounts[i]
	n := slices.IndexFunc(c.Pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name })
	if n < 0 {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Spec.Name)
	}
	v := &c.Pod.Spec.Volumes[n]
	part, err := cri.SubPath(m, env)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.Mount{
		ContainerPath: m.MountPath, Readonly: m.ReadOnly || volume.ReadOnly(v), Propagation: propagation(m.MountPropagation),
	}
	if out.ContainerPath[0] != '/' {
		out.ContainerPath = "/" + out.ContainerPath
	}
	if m.ReadOnly && m.RecursiveReadOnly != nil {
		out.RecursiveReadOnly = *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled || *m.RecursiveReadOnly == v1.RecursiveReadOnlyIfPossible
	}
	if v.Image != nil {
		return out, c.mountImage(ctx, v, part, out)
	}
	out.HostPath = c.Runner.Disk.Volumes.Path(c.Pod, v)
	if part != "" {
		out.HostPath, err = c.Runner.Disk.Volumes.SubPath(c.Pod, volume.Part{Volume: v, Container: c.Spec.Name, Mount: i, Path: part})
	}
	return out, err
}

// mountImage makes m a mount of an image's files.
func (c *Container) mountImage(ctx context.Context, v *v1.Volume, part string, m *runtimeapi.Mount) error {
	got, err := c.Runner.ensureImage(ctx, c.Pod, c.Spec.Name, image.Request{Image: v.Image.Reference, Policy: v.Image.PullPolicy})
	if err != nil {
		return err
	}
	if got.Ref == "" {
		return &StartError{got.Reason, errors.New(got.Message)} // as of the container's own image
	}
	m.Image = &runtimeapi.ImageSpec{Image: got.Ref, UserSpecifiedImage: v.Image.Reference}
	m.ImageSubPath, m.Readonly = part, true
	return nil
}

func propagation(p *v1.MountPropagationMode) runtimeapi.MountPropagation {
	if p == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
	switch *p {
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	}
	return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}
