package kubelet

import (
	"context"
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
func (s *start) mounts(ctx context.Context, env []*runtimeapi.KeyValue) ([]*runtimeapi.Mount, error) {
	if s.a.disk == nil {
		return nil, nil
	}
	var out []*runtimeapi.Mount
	for i := range s.container.VolumeMounts {
		m, err := s.mount(ctx, i, env)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	taken := func(path string) bool {
		return slices.ContainsFunc(out, func(m *runtimeapi.Mount) bool { return m.ContainerPath == path })
	}
	if (len(s.podIPs) > 0 || s.pod.Spec.HostNetwork) && !taken(hostsPath) {
		node := s.a.nodeFacts()
		path, err := s.a.disk.HostsFile(s.pod.UID, cri.HostsFile(s.pod, &node, s.podIPs))
		if err != nil {
			return nil, err
		}
		readOnly := s.container.SecurityContext != nil && s.container.SecurityContext.ReadOnlyRootFilesystem != nil && *s.container.SecurityContext.ReadOnlyRootFilesystem
		out = append(out, &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: path, Readonly: readOnly, SelinuxRelabel: true})
	}
	if p := s.container.TerminationMessagePath; p != "" && !taken(p) {
		path, err := s.a.disk.TerminationLog(s.pod.UID, s.container.Name, s.act.Attempt)
		if err != nil {
			return nil, err
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: p, HostPath: path, SelinuxRelabel: true})
	}
	return out, nil
}

// mount is the container's mount number i.
func (s *start) mount(ctx context.Context, i int, env []*runtimeapi.KeyValue) (*runtimeapi.Mount, error) {
	m := &s.container.VolumeMounts[i]
	n := slices.IndexFunc(s.pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name })
	if n < 0 {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, s.container.Name)
	}
	v := &s.pod.Spec.Volumes[n]
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
		return out, s.mountImage(ctx, v, part, out)
	}
	out.HostPath = s.a.disk.Volumes.Path(s.pod, v)
	if part != "" {
		out.HostPath, err = s.a.disk.Volumes.SubPath(s.pod, volume.Part{Volume: v, Container: s.container.Name, Mount: i, Path: part})
	}
	return out, err
}

// mountImage makes m a mount of an image's files.
func (s *start) mountImage(ctx context.Context, v *v1.Volume, part string, m *runtimeapi.Mount) error {
	got, err := s.a.puller.Ensure(ctx, image.Request{
		Pod: s.pod.UID, Image: v.Image.Reference, Policy: v.Image.PullPolicy,
		Secrets: func() *image.Keyring { return s.a.pullSecrets(ctx, s.pod) },
		Event:   func(kind, reason, message string) { s.a.about(s.pod, s.container.Name).event(kind, reason, message) },
	})
	if err != nil {
		return err
	}
	if got.Ref == "" {
		return fmt.Errorf("image volume %q: %s: %s", v.Name, got.Reason, got.Message)
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
