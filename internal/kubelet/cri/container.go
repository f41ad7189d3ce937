package cri

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// ContainerInput is what a container's configuration is made from.
type ContainerInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	Node      *Node
	Start     podstep.Action // Attempt and Backoff
	PodIPs    []string

	Objects   Objects // nil: no references and no services
	IsMissing IsMissing
	// ReadFile reads a file of a volume of the pod; nil: there are no volumes.
	ReadFile func(volume, path string) ([]byte, error)

	ImageRef  string
	ImageUser ImageUser
	Mounts    []*runtimeapi.Mount
	// Devices is what it is started with for its devices. Its mounts are not looked at: they are among Mounts.
	Devices *Devices
	// TargetID is the container whose processes an ephemeral container sees.
	TargetID string
}

// Container makes the configuration of a container. An error is a mistake in
// the pod or something missing: CreateContainerConfigError.
func Container(in *ContainerInput) (*runtimeapi.ContainerConfig, error) {
	c := in.Container
	annotations, err := containerAnnotations(in.Pod, c, in.Start)
	if err != nil {
		return nil, err
	}
	env, err := Env(in)
	if err != nil {
		return nil, err
	}
	sc, err := in.security()
	if err != nil {
		return nil, err
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.Start.Attempt)},
		Image:       &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: c.Image},
		WorkingDir:  c.WorkingDir,
		Envs:        env,
		Mounts:      in.Mounts,
		Labels:      containerLabels(in.Pod, c.Name),
		Annotations: annotations,
		LogPath:     LogPath(c.Name, in.Start.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       Resources(in.Pod, c, in.Node),
			SecurityContext: sc,
		},
	}
	in.Devices.addTo(config)
	values := make(map[string]string, len(config.Envs))
	for _, kv := range config.Envs {
		values[kv.Key] = string(kv.Value)
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	config.Command, config.Args = expandAll(c.Command, lookup), expandAll(c.Args, lookup)
	return config, nil
}

func expandAll(list []string, lookup func(string) (string, bool)) []string {
	var out []string
	for _, s := range list {
		out = append(out, Expand(s, lookup))
	}
	return out
}

func stopSignal(c *v1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	return runtimeapi.Signal(runtimeapi.Signal_value["SIGNAL_"+string(*c.Lifecycle.StopSignal)])
}

// SubPath is the path within a volume that a mount takes, with its expression
// resolved by the container's environment.
func SubPath(m *v1.VolumeMount, env []*runtimeapi.KeyValue) (string, error) {
	if m.SubPathExpr == "" {
		return m.SubPath, nil
	}
	var missing string
	path := Expand(m.SubPathExpr, func(name string) (string, bool) {
		for _, kv := range env {
			if kv.Key == name {
				return string(kv.Value), true
			}
		}
		missing = name
		return "", false
	})
	if missing != "" {
		return "", fmt.Errorf("missing value for %q", missing)
	}
	return path, nil
}
