package device

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// For is what a container is to be started with for its devices, which their plugins have made ready
// if they want to be told; nil: it has none.
func (m *Manager) For(ctx context.Context, pod *v1.Pod, c *v1.Container) (*cri.Devices, error) {
	if m == nil {
		return nil, nil
	}
	names := slices.DeleteFunc(asks(c), func(name string) bool { return !m.Manages(v1.ResourceName(name)) })
	if len(names) == 0 {
		return nil, nil
	}
	// One that runs since before the agent wrote down who has what has nothing here.
	fresh, err := m.Give(ctx, pod, c, 0)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := m.Save(); err != nil {
			return nil, err
		}
	}
	out := &cri.Devices{}
	for _, name := range names {
		a := m.allocation(owner{pod.UID, c.Name, name})
		if a == nil {
			return nil, fmt.Errorf("no devices found allocated in local cache for pod %s, container %s, resource %s", pod.UID, c.Name, name)
		}
		if err := m.preStart(ctx, name, a.ids); err != nil {
			return nil, err
		}
		add(out, a.answer)
	}
	return out, nil
}

// preStart tells a plugin that wants to know that a container with devices of its starts. It must be
// there: after a start of the machine devices may be called otherwise.
func (m *Manager) preStart(ctx context.Context, name string, ids []string) error {
	m.mu.Lock()
	r := m.mu.resources[name]
	if r == nil || !r.listed {
		m.mu.Unlock()
		return fmt.Errorf("cannot allocate unregistered device %s", name)
	}
	known := !slices.ContainsFunc(ids, func(id string) bool { return r.devices[id] == nil })
	e, serves := r.by, r.serves
	m.mu.Unlock()
	if !known {
		return fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", name)
	}
	if !e.options.GetPreStartRequired() {
		return nil
	}
	if !serves {
		return fmt.Errorf("endpoint %s has been stopped", e.socket)
	}
	ctx, cancel := context.WithTimeout(ctx, m.waits.preStart)
	defer cancel()
	if _, err := e.api.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}

// add adds what a plugin has answered to what the container is started with. What is there already stays.
func add(out *cri.Devices, answer *pluginapi.ContainerAllocateResponse) {
	for _, key := range slices.Sorted(maps.Keys(answer.GetEnvs())) {
		if !slices.ContainsFunc(out.Envs, func(kv *runtimeapi.KeyValue) bool { return kv.Key == key }) {
			out.Envs = append(out.Envs, &runtimeapi.KeyValue{Key: key, Value: []byte(answer.Envs[key])})
		}
	}
	for _, d := range answer.GetDevices() {
		if !slices.ContainsFunc(out.Nodes, func(o *runtimeapi.Device) bool { return o.ContainerPath == d.ContainerPath }) {
			out.Nodes = append(out.Nodes, &runtimeapi.Device{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
		}
	}
	for _, mount := range answer.GetMounts() {
		if !slices.ContainsFunc(out.Mounts, func(o *runtimeapi.Mount) bool { return o.ContainerPath == mount.ContainerPath }) {
			out.Mounts = append(out.Mounts, &runtimeapi.Mount{ContainerPath: mount.ContainerPath, HostPath: mount.HostPath, Readonly: mount.ReadOnly})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(answer.GetAnnotations())) {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		if _, ok := out.Annotations[key]; !ok {
			out.Annotations[key] = answer.Annotations[key]
		}
	}
	for _, d := range answer.GetCdiDevices() {
		out.AddCDI(d.GetName())
	}
}
